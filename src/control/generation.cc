#include "control/generation.h"

#include <limits>
#include <utility>

#include "control/generation_impl.h"

namespace tuft::control {
namespace {

constexpr std::string_view kCheckpointScheme = "tinker://";

Error unknown_model() {
  return not_found(
      "this model does not exist or is not yours; a model is a base model's name, the tinker:// path of a checkpoint "
      "or "
      "the id of a sampling session",
      "model_not_found");
}

}  // namespace

Result<GenerationImpl::Source> GenerationImpl::find(const UserId& user, std::string_view model) const {
  Source source;
  std::string base_model(model);
  if (model.starts_with(kCheckpointScheme)) {
    const auto checkpoint = checkpoints_.find_visible(user, model);
    if (!checkpoint.ok()) return unknown_model();
    source.checkpoint = *checkpoint;
    base_model = source.checkpoint->base_model;
  } else if (const auto sampler = sampling_->get_sampler(user, SamplerId(base_model)); sampler.ok()) {
    source.sampler = sampler->sampler;
    base_model = sampler->base_model;
  }
  const auto backend = backends_.find(base_model);
  if (!backend.ok()) return unknown_model();
  source.backend = *backend;
  if (!source.backend->config().sampling) {
    return invalid_argument("base model " + base_model + " is configured without the capability sampling",
                            "sampling_disabled");
  }
  return source;
}

Result<GenerationModel> GenerationImpl::resolve(const UserId& user, std::string_view model) const {
  TUFT_ASSIGN(const Source source, find(user, model));
  GenerationModel found{source.backend->name(), &source.backend->config(), {}};
  if (source.checkpoint != nullptr) found.tinker_path = source.checkpoint->path.str();
  if (source.sampler.empty()) return found;
  if (const auto info = sampling_->get_sampler(user, source.sampler); info.ok()) {
    found.tinker_path = info->model_path.value_or("");
  }
  return found;
}

std::vector<ListedModel> GenerationImpl::models(const UserId& user) const {
  std::vector<ListedModel> models;
  for (const auto& backend : backends_.all()) {
    if (backend->config().sampling) models.push_back({backend->name(), {}, {}, true, started_});
  }
  const PageRequest all{0, std::numeric_limits<int64_t>::max()};
  for (const CheckpointStore::Ptr& checkpoint : checkpoints_.of_owner(user, all, CheckpointKind::kSampler).items) {
    const std::optional<Nanos> created = parse_iso_time(checkpoint->created_at);
    models.push_back({checkpoint->path.str(), checkpoint->owner, checkpoint->base_model, checkpoint->is_public,
                      created.value_or(0) / kSecond});
  }
  return models;
}

Result<Generation::Number> GenerationImpl::start(const UserId& user, GenerationRequest request,
                                                 const telemetry::SpanContext& trace, GenerationListener listener) {
  TUFT_ASSIGN(Source source, find(user, request.model));
  return sampling_->start_stream(user, source, std::move(request), trace, std::move(listener));
}

}  // namespace tuft::control
