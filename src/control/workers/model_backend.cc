#include "control/workers/model_backend.h"

#include "base/check.h"
#include "metrics/futures.h"
#include "telemetry/instrument.h"

namespace tuft::control {

ModelBackends::ModelBackends(const std::vector<config::ModelConfig>& models,
                             const std::vector<actor::ModelActor*>& actors) {
  TUFT_CHECK(models.size() == actors.size(), "each supported model has one actor");
  for (size_t i = 0; i < models.size(); ++i) {
    backends_.push_back(std::make_shared<ModelBackend>(models[i], *actors[i]));
    bind_terminal_series(models[i].model_name);
  }
  const auto observe_queues = [this](auto number) {
    return [this, number](const telemetry::Observable::Observe& observe) {
      for (const auto& backend : backends_) {
        const telemetry::Label model = {"base_model", backend->name()};
        observe(number(backend->training_queue().load()), {model, {"kind", "training"}});
        observe(number(backend->sampling_queue().load()), {model, {"kind", "sampling"}});
      }
    };
  };
  using Load = DispatchQueue::Load;
  metrics::futures().dispatch_waiting.set_callback(
      observe_queues([](const Load& load) { return static_cast<double>(load.waiting); }));
  metrics::futures().dispatch_in_flight.set_callback(
      observe_queues([](const Load& load) { return static_cast<double>(load.in_flight); }));
}

ModelBackends::~ModelBackends() {
  metrics::futures().dispatch_waiting.set_callback({});
  metrics::futures().dispatch_in_flight.set_callback({});
}

Result<std::shared_ptr<ModelBackend>> ModelBackends::find(std::string_view name) const {
  std::string known;
  for (const auto& backend : backends_) {
    if (backend->name() == name) return backend;
    known += (known.empty() ? "" : ", ") + backend->name();
  }
  return not_found("this server has no such base model; it has: " + known, "unknown_base_model");
}

}  // namespace tuft::control
