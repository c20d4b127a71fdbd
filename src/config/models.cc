#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/file.h"
#include "config/sections.h"

namespace tuft::config {
namespace {

constexpr int kLoraRankMax = 4096;
constexpr int kWorkersMax = 256;
constexpr size_t kModelNameMax = 200;

void read_capabilities(MapReader& reader, ModelConfig& model) {
  constexpr std::string_view kKey = "capabilities";
  const Node* node = reader.take(kKey);
  if (node == nullptr) return;
  if (!node->is_list()) return reader.error(kKey, "must be a list of training and sampling");
  model.training = model.sampling = false;
  for (const Node& item : node->items) {
    if (item.is_scalar() && item.text == "training") {
      model.training = true;
    } else if (item.is_scalar() && item.text == "sampling") {
      model.sampling = true;
    } else {
      reader.problems().error(item.line, reader.path_of(kKey), "each entry must be training or sampling");
    }
  }
  if (node->items.empty()) reader.error(kKey, "must name at least one of training, sampling");
}

void check_name(MapReader& reader, const std::string& name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (name.empty() || name.size() > kModelNameMax || !printable) {
    reader.error("model_name", "must be 1 to 200 printable ASCII characters without spaces");
  } else if (name.find(':') != std::string::npos) {
    reader.warning("model_name",
                   "the Tinker SDK cuts model names at ':', so its get_tokenizer() will not find this one");
  }
}

void read_path(MapReader& reader, ModelConfig& model) {
  std::string text;
  if (!reader.text("model_path", text)) return;
  std::error_code ignored;
  model.model_path = full_path(text);
  if (!std::filesystem::is_directory(model.model_path, ignored)) {
    reader.error("model_path", "there is no directory " + model.model_path.string() +
                                   ". Give a local Hugging Face model directory (names on the hub are not "
                                   "downloaded); `tuft init-model DIR` makes a small one");
  } else if (!std::filesystem::is_regular_file(model.model_path / "config.json", ignored)) {
    reader.error("model_path", "there is no config.json in " + model.model_path.string() +
                                   "; it must be a Hugging Face model directory");
  }
}

bool is_device(std::string_view device) {
  constexpr std::string_view kNumbered = "cuda:";
  if (device == "cpu" || device == "cuda") return true;
  if (!device.starts_with(kNumbered)) return false;
  const std::string_view number = device.substr(kNumbered.size());
  constexpr size_t kDigitsMax = 3;
  return !number.empty() && number.size() <= kDigitsMax &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The worker itself reports at its start if it lacks libtorch or the device.
void read_back_end(MapReader& reader, ModelConfig& model) {
  if (const auto backend = reader.one_of("backend", {"native", "torch"})) {
    model.backend = static_cast<BackEnd>(*backend);
  }
  const bool named = reader.text("device", model.device);
  if (!reader.boolean("cuda_graphs", model.cuda_graphs)) {
    model.cuda_graphs = model.device != "cpu";
  } else if (model.cuda_graphs && model.device == "cpu") {
    reader.error("cuda_graphs", "records the work of a GPU; set device: cuda, or cuda_graphs: false");
  }
  if (!named) return;
  if (!is_device(model.device)) {
    reader.error("device", "must be cpu, cuda or cuda:N, not '" + model.device + "'");
  } else if (model.device != "cpu" && model.backend == BackEnd::kNative) {
    reader.error("device", "the native back end computes on the CPU; set backend: torch, or device: cpu");
  }
}

ModelConfig read_model(const Node& node, size_t index, size_t models, Problems& problems) {
  MapReader reader(&node, "supported_models[" + std::to_string(index) + "]", problems);
  ModelConfig model;
  if (!node.is_map()) {
    if (node.is_null()) problems.error(node.line, "supported_models[" + std::to_string(index) + "]", "is empty");
    return model;
  }
  reader.require("model_name", "the name under which clients ask for the model");
  if (reader.text("model_name", model.model_name)) check_name(reader, model.model_name);
  reader.require("model_path", "the directory of the model");
  read_path(reader, model);
  reader.require("max_model_len", "the longest prompt plus output, and the longest datum, in tokens");
  reader.integer("max_model_len", model.max_model_len, 1);
  read_capabilities(reader, model);
  const bool has_rank = reader.integer("max_lora_rank", model.max_lora_rank, 1, kLoraRankMax);
  reader.integer("lora_alpha_ratio", model.lora_alpha_ratio, 1);
  reader.integer("train_batch_tokens", model.train_batch_tokens, 1);
  reader.integer("sample_batch_tokens", model.sample_batch_tokens, 1);
  reader.integer("threads", model.threads, 0, 4096);
  reader.integer("kv_cache_bytes", model.kv_cache_bytes, 0);
  reader.integer("adapter_memory_bytes", model.adapter_memory_bytes, 0);
  reader.integer("adapter_page_bytes", model.adapter_page_bytes, 0);
  reader.integer("training_share", model.training_share, 1, 99);
  if (int tokens = 0; reader.integer("default_max_tokens", tokens, 1)) model.default_max_tokens = tokens;
  read_back_end(reader, model);
  if (const auto worker = reader.one_of("worker", {"local", "joined"})) model.worker = static_cast<WorkerKind>(*worker);
  reader.integer("workers", model.workers, 1, kWorkersMax);
  reader.boolean("replicate", model.replicate);
  if (const auto dtype = reader.one_of("weights_dtype", {"auto", "f32", "bf16"})) {
    model.weights_dtype = static_cast<WeightsDtype>(*dtype);
  }
  reader.integer("max_loras", model.max_loras, 1);
  if (reader.take("max_loras") != nullptr) {
    problems.warning_once(reader.line_of("max_loras"), reader.path_of("max_loras"), "max_loras",
                          "has no effect: adapters share a step without a limit of their own; "
                          "limits.runs_per_user_max and limits.samplers_per_user_max bound them");
  }
  read_legacy_model_keys(reader, {.models = models,
                                  .training = model.training,
                                  .sampling = model.sampling,
                                  .max_lora_rank = has_rank ? std::optional(model.max_lora_rank) : std::nullopt});
  if (model.replicate && !model.training) {
    reader.warning("replicate", "has no effect: it keeps what training runs do, and this model does not train");
  }
  reader.finish();
  return model;
}

}  // namespace

std::vector<ModelConfig> read_models(const Node* node, int parent_line, Problems& problems) {
  if (node == nullptr || (node->is_list() && node->items.empty())) {
    problems.error(node == nullptr ? parent_line : node->line, "supported_models",
                   "must list at least one model with model_name, model_path and max_model_len");
    return {};
  }
  if (!node->is_list()) {
    problems.error(node->line, "supported_models", "must be a list: one \"- model_name: ...\" block a model");
    return {};
  }
  std::vector<ModelConfig> models;
  for (size_t i = 0; i < node->items.size(); ++i) {
    models.push_back(read_model(node->items[i], i, node->items.size(), problems));
    const auto same = std::find_if(models.begin(), models.end() - 1, [&](const ModelConfig& other) {
      return !other.model_name.empty() && other.model_name == models.back().model_name;
    });
    if (same != models.end() - 1) {
      problems.error(
          node->items[i].line, "supported_models[" + std::to_string(i) + "].model_name",
          "is the name of supported_models[" + std::to_string(same - models.begin()) + "] too; names must be unique");
    }
  }
  return models;
}

}  // namespace tuft::config
