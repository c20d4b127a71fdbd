#include "control/model_backend.h"

#include "base/check.h"

namespace tuft::control {

ModelBackends::ModelBackends(const std::vector<config::ModelConfig>& models,
                             const std::vector<actor::ModelActor*>& actors) {
  TUFT_CHECK(models.size() == actors.size(), "one actor for each supported model");
  for (size_t i = 0; i < models.size(); ++i) {
    backends_.push_back(std::make_shared<ModelBackend>(models[i], *actors[i]));
    bind_terminal_series(models[i].model_name);
  }
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
