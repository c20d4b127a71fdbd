#include <cmath>

#include "base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/layout.h"
#include "engine/json_fields.h"
#include "engine/new_directory.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

void add_tensors(const ModelSpec& model, const LoraSpec& spec, const std::vector<LoraTensor>& tensors,
                 const std::string& prefix, std::vector<NamedTensor>& out) {
  const std::vector<LoraLayer> places = lora_layers(model, spec);
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string name = prefix + module_name(places[i].module, places[i].layer);
    out.push_back({name + ".lora_A.weight", Dtype::kFloat32, shape_of_a(spec, places[i]), bytes_of(tensors[i].a)});
    out.push_back({name + ".lora_B.weight", Dtype::kFloat32, shape_of_b(spec, places[i]), bytes_of(tensors[i].b)});
  }
}

std::string adapter_config(const LoraSpec& spec, const std::string& base_model_name) {
  Json modules = Json::array();
  for (const TargetModule module : spec.target_modules()) modules.push_back(std::string(module_name(module)));
  // PEFT declares alpha as an int and writes it as one.
  const bool whole = std::nearbyint(spec.alpha) == spec.alpha && std::fabs(spec.alpha) < 1e9F;
  const Json alpha = whole ? Json(static_cast<int64_t>(spec.alpha)) : Json(spec.alpha);
  const Json config = {{"alpha_pattern", Json::object()},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path", base_model_name},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"lora_alpha", alpha},
                       {"lora_dropout", 0.0},
                       {"modules_to_save", nullptr},
                       {"peft_type", "LORA"},
                       {"r", spec.rank},
                       {"rank_pattern", Json::object()},
                       {"revision", nullptr},
                       {"target_modules", modules},
                       {"task_type", "CAUSAL_LM"},
                       {"use_dora", false},
                       {"use_rslora", false}};
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_files(const fs::path& directory, const ModelSpec& model, const AdapterState& state,
                   const std::string& base_model_name) {
  std::vector<NamedTensor> tensors;
  add_tensors(model, state.spec, state.tensors, "", tensors);
  TUFT_TRY(write_safetensors(directory / kAdapterFile, tensors,
                             {{"format", "pt"}, {"tuft.seed", std::to_string(state.spec.seed)}}));
  if (state.has_optimizer) {
    tensors.clear();
    const MomentPrefixes prefixes = moment_prefixes(state.optimizer);
    add_tensors(model, state.spec, state.moments.first, prefixes.first, tensors);
    if (!prefixes.second.empty()) add_tensors(model, state.spec, state.moments.second, prefixes.second, tensors);
    TUFT_TRY(write_safetensors(
        directory / kOptimizerFile, tensors,
        {{"format", optimizer_format(state.optimizer)}, {"step", std::to_string(state.moments.step)}}));
  }
  TUFT_TRY(write_file_atomically(directory / kAdapterConfigFile, adapter_config(state.spec, base_model_name)));
  return write_file_atomically(directory / kCompleteFile, "");
}

int64_t bytes_in(const fs::path& directory) {
  int64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    sum += static_cast<int64_t>(entry.file_size(ignored));
  }
  return sum;
}

}  // namespace

Result<int64_t> write_checkpoint(const fs::path& directory, const ModelSpec& model, const AdapterState& state,
                                 const std::string& base_model_name) {
  TUFT_TRY(check_tensors(model, state.spec, state.tensors, "adapter"));
  if (state.has_optimizer) {
    TUFT_TRY(check_tensors(model, state.spec, state.moments.first, "optimizer (first moment)"));
    if (!moment_prefixes(state.optimizer).second.empty()) {
      TUFT_TRY(check_tensors(model, state.spec, state.moments.second, "optimizer (second moment)"));
    }
  }
  const auto fail = [&](Error error) {
    if (error.code == ErrorCode::kAlreadyExists) {
      return Error{error.code, "a checkpoint of that name already exists; choose another name", "checkpoint_exists"};
    }
    return without_path(std::move(error), directory.parent_path());
  };
  auto target = NewDirectory::create(directory);
  if (!target.ok()) return fail(std::move(target).error());
  Status written = write_files(target->path(), model, state, base_model_name);
  const int64_t bytes = bytes_in(target->path());
  if (written.ok()) written = target->commit();
  if (!written.ok()) return fail(std::move(written).error());
  return bytes;
}

}  // namespace tuft::engine
