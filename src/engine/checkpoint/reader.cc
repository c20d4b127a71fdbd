#include <charconv>
#include <set>

#include "base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/layout.h"
#include "engine/json_fields.h"
#include "engine/shape_text.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kAdapterConfigBytesMax = 16 << 20;
constexpr int64_t kRankMax = 1 << 16;

Error foreign(const std::string& what) {
  return invalid_argument(what, "checkpoint_mismatch");
}
Error torn(const std::string& what) {
  return data_loss(what, "checkpoint_torn");
}

// Refuses PEFT features that are not supported here. Dropout has an effect only in PEFT's own training.
Status refuse_unknown_features(const Json& object, JsonFields& config) {
  const auto refuse = [&](const std::string& what) {
    return foreign(std::string(kAdapterConfigFile) + ": " + what + " is not supported");
  };
  if (const std::string type = config.text("peft_type", "LORA"); type != "LORA") return refuse("peft_type " + type);
  if (const std::string bias = config.text("bias", "none"); bias != "none") return refuse("bias '" + bias + "'");
  for (const char* key : {"use_dora", "use_rslora", "use_qalora", "fan_in_fan_out", "lora_bias"}) {
    if (config.boolean(key, false)) return refuse(std::string(key) + " = true");
  }
  for (const char* key : {"modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform",
                          "layer_replication", "target_parameters", "trainable_token_indices"}) {
    if (config.has(key) && !object[key].empty()) return refuse(key);
  }
  return config.status();
}

Status read_adapter_config(const fs::path& directory, LoraSpec& spec) {
  auto text = read_file(directory / kAdapterConfigFile, kAdapterConfigBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
    return torn(std::string("the checkpoint has no ") + kAdapterConfigFile);
  }
  if (!text.ok()) return std::move(text).error();
  auto object = parse_json_object(*text, kAdapterConfigFile);
  if (!object.ok()) return torn(object.error().message);
  JsonFields config(*object, kAdapterConfigFile);
  TUFT_TRY(refuse_unknown_features(*object, config));
  spec.rank = static_cast<int>(config.integer("r", std::nullopt, 1, kRankMax));
  spec.alpha = static_cast<float>(config.number("lora_alpha", std::nullopt, 1e-9, 1e9));
  return config.status();
}

std::string a_name(const std::string& prefix, TargetModule module, int layer) {
  return prefix + module_name(module, layer) + ".lora_A.weight";
}
std::string b_name(const std::string& prefix, TargetModule module, int layer) {
  return prefix + module_name(module, layer) + ".lora_B.weight";
}

// Finds the trained layers from the tensor names, because the config may hold a pattern instead of names.
Status find_target_modules(const TensorFiles& files, LoraSpec& spec) {
  const auto group = [&](std::initializer_list<TargetModule> target_modules, const char* what,
                         bool& trained) -> Status {
    std::string present;
    std::string absent;
    for (const TargetModule module : target_modules) {
      std::string& list = files.contains(a_name("", module, 0)) ? present : absent;
      list += (list.empty() ? "" : ", ") + std::string(module_name(module));
    }
    trained = !present.empty();
    if (present.empty() || absent.empty()) return {};
    return foreign("the checkpoint trains " + present + " but not " + absent + "; here " + what +
                   " layers are trained together or not at all");
  };
  TUFT_TRY(
      group({TargetModule::kQ, TargetModule::kK, TargetModule::kV, TargetModule::kO}, "attention", spec.train_attn));
  TUFT_TRY(group({TargetModule::kGate, TargetModule::kUp, TargetModule::kDown}, "MLP", spec.train_mlp));
  TUFT_TRY(group({TargetModule::kLmHead}, "output", spec.train_unembed));
  if (spec.target_modules().empty()) {
    return foreign("the checkpoint holds no LoRA tensor of a layer that this model has, such as " +
                   a_name("", TargetModule::kQ, 0));
  }
  return {};
}

Result<std::vector<float>> read_tensor(const TensorFiles& files, const std::string& name,
                                       const std::vector<int64_t>& shape) {
  auto view = files.find(name);
  if (!view.ok() && view.error().code == ErrorCode::kNotFound) {
    return foreign("the checkpoint has no tensor " + name + "; it was made for another model or is incomplete");
  }
  if (!view.ok()) return std::move(view).error();
  if (view->shape != shape) {
    return foreign("tensor " + name + " has shape " + shape_text(view->shape) + "; this model and the rank in " +
                   kAdapterConfigFile + " need " + shape_text(shape));
  }
  auto values = files.read(name);
  if (values.ok()) return values;
  if (values.error().code == ErrorCode::kInvalidArgument) {
    return foreign("tensor " + name + ": " + values.error().message);
  }
  if (values.error().code == ErrorCode::kDataLoss) return torn("the checkpoint ends before its tensor " + name);
  return values;
}

Result<std::vector<LoraTensor>> read_tensors(const TensorFiles& files, const ModelSpec& model, const LoraSpec& spec,
                                             const std::string& prefix, std::set<std::string>& used) {
  std::vector<LoraTensor> out;
  for (const LoraLayer& place : lora_layers(model, spec)) {
    LoraTensor tensor;
    tensor.module = place.module;
    tensor.layer = place.layer;
    const std::string a = a_name(prefix, place.module, place.layer);
    const std::string b = b_name(prefix, place.module, place.layer);
    TUFT_ASSIGN(tensor.a, read_tensor(files, a, shape_of_a(spec, place)));
    TUFT_ASSIGN(tensor.b, read_tensor(files, b, shape_of_b(spec, place)));
    used.insert({a, b});
    out.push_back(std::move(tensor));
  }
  return out;
}

// PEFT also stores the frozen layer under a trained lm_head. It is a copy of the base model's layer and is ignored.
Status refuse_leftovers(const TensorFiles& files, const std::set<std::string>& used) {
  for (const std::string& name : files.names()) {
    if (!used.contains(name) && !name.ends_with(".base_layer.weight")) {
      return foreign("the checkpoint holds " + name + ", which this model has no place for");
    }
  }
  return {};
}

template <typename Integer>
bool parse_integer(const TensorFiles& files, const char* key, Integer* out) {
  const auto found = files.metadata().find(key);
  if (found == files.metadata().end()) return false;
  const std::string& text = found->second;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return code == std::errc() && end == text.data() + text.size();
}

Result<std::unique_ptr<TensorFiles>> open_tensors(const fs::path& directory, const char* file) {
  auto files = TensorFiles::open_file(directory / file);
  if (!files.ok() && files.error().code == ErrorCode::kDataLoss) {
    return torn(std::string(file) + " of the checkpoint is torn");
  }
  return files;
}

Status read_optimizer(const fs::path& directory, const ModelSpec& model, AdapterState& state) {
  auto files = open_tensors(directory, kOptimizerFile);
  if (!files.ok() && files.error().code == ErrorCode::kNotFound) {
    return not_found("the checkpoint has no optimizer state; load it without, or load one made by save_state",
                     "optimizer_missing");
  }
  if (!files.ok()) return std::move(files).error();
  const auto format = (*files)->metadata().find("format");
  const auto optimizer = format == (*files)->metadata().end() ? std::nullopt : optimizer_of_format(format->second);
  if (!optimizer || !parse_integer(**files, "step", &state.moments.step) || state.moments.step < 0) {
    return torn(std::string(kOptimizerFile) + " has no valid format and step");
  }
  state.optimizer = *optimizer;
  const MomentPrefixes prefixes = moment_prefixes(*optimizer);
  std::set<std::string> used;
  TUFT_ASSIGN(state.moments.first, read_tensors(**files, model, state.spec, prefixes.first, used));
  if (!prefixes.second.empty()) {
    TUFT_ASSIGN(state.moments.second, read_tensors(**files, model, state.spec, prefixes.second, used));
  }
  TUFT_TRY(refuse_leftovers(**files, used));
  state.has_optimizer = true;
  return {};
}

// A link could point to any file of the server, or change while it is read.
Status refuse_links(const fs::path& directory) {
  for (const char* file : {kAdapterConfigFile, kAdapterFile, kOptimizerFile}) {
    std::error_code ignored;
    if (fs::is_symlink(directory / file, ignored)) {
      return foreign(std::string(file) + " is a link; the files of a checkpoint must be regular files");
    }
  }
  return {};
}

Result<AdapterState> read_all(const fs::path& directory, const ModelSpec& model, bool with_optimizer) {
  AdapterState state;
  TUFT_TRY(refuse_links(directory));
  TUFT_TRY(read_adapter_config(directory, state.spec));
  auto files = open_tensors(directory, kAdapterFile);
  if (!files.ok() && files.error().code == ErrorCode::kNotFound) {
    return torn(std::string("the checkpoint has no ") + kAdapterFile);
  }
  if (!files.ok()) return std::move(files).error();
  TUFT_TRY(find_target_modules(**files, state.spec));
  std::set<std::string> used;
  TUFT_ASSIGN(state.tensors, read_tensors(**files, model, state.spec, "", used));
  TUFT_TRY(refuse_leftovers(**files, used));
  if (!parse_integer(**files, "tuft.seed", &state.spec.seed)) state.spec.seed = 0;
  if (with_optimizer) TUFT_TRY(read_optimizer(directory, model, state));
  return state;
}

}  // namespace

Result<AdapterState> read_checkpoint(const fs::path& directory, const ModelSpec& model, bool with_optimizer) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return not_found("there is no such checkpoint", "checkpoint_missing");
  auto state = read_all(directory, model, with_optimizer);
  if (state.ok()) return state;
  return without_path(std::move(state).error(), directory);
}

}  // namespace tuft::engine
