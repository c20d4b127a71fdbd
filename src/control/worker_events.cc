#include "control/worker_events.h"

#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {
namespace {

// A worker that ends before it has answered becomes ready in another life. One that hangs has not said what it holds.
void ask_what_it_holds(const ModelBackendPtr& backend, const std::weak_ptr<TrainingController>& weak_training,
                       const std::weak_ptr<SamplingController>& weak_sampling, uint64_t incarnation) {
  backend->actor().list_holdings({}, {.incarnation = incarnation},
                                 [backend, weak_training, weak_sampling, incarnation](const auto& holdings) {
                                   const auto training = weak_training.lock();
                                   const auto sampling = weak_sampling.lock();
                                   if (training == nullptr || sampling == nullptr) return;
                                   if (!holdings.ok() && actor::is_worker_lost(holdings.error())) return;
                                   if (!holdings.ok() && holdings.error().code == ErrorCode::kDeadlineExceeded) {
                                     return ask_what_it_holds(backend, weak_training, weak_sampling, incarnation);
                                   }
                                   if (backend->begin_deciding(incarnation)) {
                                     const auto held = holdings.ok() ? *holdings : worker::v1::ListHoldingsResponse();
                                     training->resumption().on_worker_ready(backend, incarnation, held);
                                     sampling->adapters().on_worker_back(*backend, incarnation, held);
                                   } else {  // it was silent meanwhile
                                     training->restorer().on_worker_ready(backend, incarnation);
                                   }
                                   sampling->adapters().on_worker_ready(*backend);
                                 });
}

}  // namespace

void watch_worker(const ModelBackendPtr& backend, const std::weak_ptr<TrainingController>& weak_training,
                  const std::weak_ptr<SamplingController>& weak_sampling) {
  const std::weak_ptr<ModelBackend> weak_backend = backend;
  auto on_ready = [weak_backend, weak_training, weak_sampling](uint64_t incarnation) {
    const auto model = weak_backend.lock();
    const auto training = weak_training.lock();
    const auto sampling = weak_sampling.lock();
    if (model == nullptr || training == nullptr || sampling == nullptr) return;
    model->actor().describe({}, {}, [weak_backend](Result<worker::v1::DescribeResponse> result) {
      const auto described = weak_backend.lock();
      if (described != nullptr && result.ok()) described->facts().set_description(*result);
    });
    if (model->may_come_back()) return ask_what_it_holds(model, weak_training, weak_sampling, incarnation);
    training->restorer().on_worker_ready(model, incarnation);
    sampling->adapters().on_worker_ready(*model);
  };
  backend->actor().on_draining([weak_backend, weak_training](uint64_t incarnation, Nanos limit) {
    const auto model = weak_backend.lock();
    const auto training = weak_training.lock();
    if (model != nullptr && training != nullptr) training->drain().begin(model, incarnation, limit);
  });
  backend->actor().on_ready(on_ready);
  if (backend->actor().ready()) on_ready(backend->actor().incarnation());
}

}  // namespace tuft::control
