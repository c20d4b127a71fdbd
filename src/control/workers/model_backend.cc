#include "control/workers/model_backend.h"

#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "metrics/futures.h"

namespace tuft::control {

namespace {

template <typename LoadOf>
DispatchQueue::Load sum_of(const std::vector<ModelBackendPtr>& workers, LoadOf load_of) {
  DispatchQueue::Load sum;
  for (const ModelBackendPtr& worker : workers) {
    const DispatchQueue::Load load = load_of(*worker);
    sum.waiting += load.waiting;
    sum.in_flight += load.in_flight;
  }
  return sum;
}

}  // namespace

Model::Model(const config::ModelConfig& config, const std::vector<actor::ModelActor*>& actors)
    : facts_(std::make_shared<ModelFacts>(config)) {
  for (actor::ModelActor* actor : actors) {
    workers_.push_back(std::make_shared<ModelBackend>(facts_, workers_.size(), *actor));
  }
}

bool Model::ready() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->actor().ready(); });
}

actor::WorkerState Model::state() const {
  using actor::WorkerState;
  std::set<WorkerState> states;
  for (const auto& worker : workers_) states.insert(worker->actor().state());
  for (const WorkerState best : {WorkerState::kReady, WorkerState::kDraining, WorkerState::kSilent,
                                 WorkerState::kStarting, WorkerState::kDead}) {
    if (states.contains(best)) return best;
  }
  return WorkerState::kAbsent;
}

DispatchQueue::Load Model::training_load() const {
  return sum_of(workers_, [](const ModelBackend& worker) { return worker.training_queue().load(); });
}

DispatchQueue::Load Model::sampling_load() const {
  return sum_of(workers_, [](const ModelBackend& worker) { return worker.sampling_queue().load(); });
}

bool Model::others_serve(const ModelBackend& one) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& worker) { return worker.get() != &one && worker->serves(); });
}

ModelBackendPtr Model::for_training(Nanos now, const ModelBackend* left) const {
  double ranks = 1;
  double work = 1;
  for (const ModelBackendPtr& worker : workers_) {
    ranks += static_cast<double>(worker->ranks());
    work += worker->recent_work().at(now);
  }
  const auto load = [&](const ModelBackendPtr& worker) {
    return static_cast<double>(worker->ranks()) / ranks + worker->recent_work().at(now) / work;
  };
  using Rating = std::pair<bool, double>;  // the smaller, the better
  ModelBackendPtr best;
  Rating of_best;
  for (const ModelBackendPtr& worker : workers_) {
    if (worker.get() == left) continue;
    const Rating rating = {!worker->serves(), load(worker)};
    if (best != nullptr && rating >= of_best) continue;
    best = worker;
    of_best = rating;
  }
  return best;
}

ModelBackends::ModelBackends(const std::vector<config::ModelConfig>& models,
                             const std::vector<actor::ModelActor*>& actors) {
  size_t next = 0;
  for (const config::ModelConfig& model : models) {
    const auto count = static_cast<size_t>(model.workers);
    TUFT_CHECK(next + count <= actors.size(), "each worker of a supported model has one actor");
    const auto own = std::span(actors).subspan(next, count);
    models_.push_back(std::make_shared<const Model>(model, std::vector(own.begin(), own.end())));
    backends_.insert(backends_.end(), models_.back()->workers().begin(), models_.back()->workers().end());
    next += count;
    bind_terminal_series(model.model_name);
  }
  TUFT_CHECK(next == actors.size(), "each actor is that of a worker of a supported model");
}

Result<ModelPtr> ModelBackends::find(std::string_view name) const {
  std::string known;
  for (const ModelPtr& model : models_) {
    if (model->name() == name) return model;
    known += (known.empty() ? "" : ", ") + model->name();
  }
  return not_found("this server has no such base model; it has: " + known, "unknown_base_model");
}

}  // namespace tuft::control
