#include "control/sampling/generation.h"

#include <utility>

#include "control/sampling/generation_impl.h"

namespace tuft::control {
namespace {

constexpr std::string_view kCheckpointScheme = "tinker://";

Error unknown_model() {
  return not_found(
      "this model does not exist or is not yours; a model is a base model's name, the tinker:// path of a checkpoint "
      "or the id of a sampling session",
      "model_not_found");
}

ListedModel listed_checkpoint(const Checkpoint& checkpoint) {
  return {checkpoint.path.str(), checkpoint.owner, checkpoint.base_model, checkpoint.is_public,
          parse_iso_time(checkpoint.created_at).value_or(0) / kSecond};
}

}  // namespace

Result<StreamSource> GenerationImpl::find(const UserId& user, std::string_view model) const {
  StreamSource source;
  std::string base_model(model);
  if (model.starts_with(kCheckpointScheme)) {
    const auto checkpoint = checkpoints_.find_visible(user, model);
    if (!checkpoint.ok()) return unknown_model();
    source.checkpoint = *checkpoint;
    base_model = source.checkpoint->base_model;
  } else if (const auto sampler = sampling_->samplers().info(user, SamplerId(base_model)); sampler.ok()) {
    source.sampler = sampler->sampler;
    base_model = sampler->base_model;
  }
  const Result<ModelPtr> base = backends_.find(base_model);
  if (!base.ok()) return unknown_model();
  source.model = *base;
  if (!source.model->config().sampling) return sampling_disabled(base_model);
  return source;
}

Result<GenerationModel> GenerationImpl::resolve(const UserId& user, std::string_view model) const {
  TUFT_ASSIGN(const StreamSource source, find(user, model));
  GenerationModel found{source.model->name(), &source.model->config(), {}};
  if (source.checkpoint != nullptr) found.tinker_path = source.checkpoint->path.str();
  if (source.sampler.empty()) return found;
  if (const auto info = sampling_->samplers().info(user, source.sampler); info.ok()) {
    found.tinker_path = info->model_path.value_or("");
  }
  return found;
}

Result<ListedModels> GenerationImpl::models(const UserId& user, std::string_view after, size_t count_max) const {
  ListedModels page;
  const auto add = [&](ListedModel model) {
    page.has_more = page.models.size() == count_max;
    if (!page.has_more) page.models.push_back(std::move(model));
  };
  bool begun = after.empty();
  for (const ModelPtr& model : backends_.models()) {
    if (!model->config().sampling) continue;
    if (begun) add(listed_base(*model));
    begun = begun || model->name() == after;
  }
  CheckpointPtr previous;
  if (!begun) {
    previous = checkpoints_.find(std::string(after));
    if (previous == nullptr || previous->owner != user || previous->path.kind != CheckpointKind::kSampler ||
        previous->ephemeral) {
      return invalid_argument("after does not name a model of your list, or the model is gone; begin again without it",
                              "unknown_cursor");
    }
  }
  // Asks for one more than wanted, to learn whether there are more.
  const size_t left = count_max + 1 - page.models.size();
  for (const auto& checkpoint : checkpoints_.lists().samplers_after(user, previous, left)) {
    add(listed_checkpoint(*checkpoint));
  }
  return page;
}

Result<ListedModel> GenerationImpl::listed(const UserId& user, std::string_view model) const {
  TUFT_ASSIGN(const StreamSource source, find(user, model));
  if (source.checkpoint != nullptr) {
    ListedModel found = listed_checkpoint(*source.checkpoint);
    if (found.owner != user) found.owner = {};  // the owner of a public checkpoint is not disclosed
    return found;
  }
  if (source.sampler.empty()) return listed_base(*source.model);
  return ListedModel{std::string(model), user, source.model->name(), false, 0};
}

Result<Generation::Number> GenerationImpl::start(const UserId& user, GenerationRequest request,
                                                 const telemetry::SpanContext& trace, GenerationListener listener) {
  TUFT_ASSIGN(StreamSource source, find(user, request.model));
  return sampling_->streams().start(user, source, std::move(request), trace, std::move(listener));
}

}  // namespace tuft::control
