#include "control/model_backend.h"

#include "base/check.h"
#include "telemetry/metrics.h"

namespace tuft::control {

ModelBackends::ModelBackends(const std::vector<config::ModelConfig>& models,
                             const std::vector<actor::ModelActor*>& actors) {
  TUFT_CHECK(models.size() == actors.size(), "one actor for each supported model");
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
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  metrics.dispatch_waiting.set_callback(
      observe_queues([](const Load& load) { return static_cast<double>(load.waiting); }));
  metrics.dispatch_in_flight.set_callback(
      observe_queues([](const Load& load) { return static_cast<double>(load.in_flight); }));
}

ModelBackends::~ModelBackends() {
  telemetry::get_metrics().dispatch_waiting.set_callback({});
  telemetry::get_metrics().dispatch_in_flight.set_callback({});
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
