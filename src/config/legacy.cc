#include <array>
#include <set>
#include <string>

#include "config/sections.h"

namespace tuft::config {
namespace {

struct LegacyKey {
  std::string_view name;
  std::string_view advice;
};

constexpr std::string_view kThreads =
    "has no effect: `workers` says how many workers serve the model, each on one device or on `threads` cores";
constexpr std::string_view kLoraTargets =
    "has no effect: the client chooses the targets (train_attn, train_mlp, train_unembed of "
    "create_lora_training_client)";
constexpr std::string_view kFsdp =
    "has no effect: `backend` chooses the engine, and it has no ranks; `threads` sets its cores";
constexpr std::string_view kAdapterSlots =
    "has no effect: adapters of any rank up to max_lora_rank are made on request";
constexpr std::string_view kEngineDefault = "has no effect: each request has its own value";
constexpr std::string_view kToolCalls = "has no effect: tools only go into the prompt, and answers are text";
constexpr std::string_view kOneCopy = "has no effect: training and sampling always share one copy of the weights";

constexpr auto kLegacyKeys = std::to_array<LegacyKey>({
    {"tensor_parallel_size", kThreads},
    {"data_parallel_size", kThreads},
    {"temperature", kEngineDefault},
    {"top_p", kEngineDefault},
    {"top_k", kEngineDefault},
    {"logprobs", kEngineDefault},
    {"min_response_tokens", kEngineDefault},
    {"seed", "has no effect: give the seed with the sampling request or the LoRA configuration"},
    {"micro_batch_size", "has no effect: the size of a pass is counted in tokens; set train_batch_tokens"},
    {"training_backend", kFsdp},
    {"fsdp_num_gpus", kFsdp},
    {"fsdp_master_port", kFsdp},
    {"fsdp_override_config", kFsdp},
    {"fsdp_rank_slots", kAdapterSlots},
    {"fsdp_qv_only", kLoraTargets},
    {"fsdp_target_modules", kLoraTargets},
    {"fsdp_target_parameters", kLoraTargets},
    {"fsdp_train_attn", kLoraTargets},
    {"fsdp_train_mlp", kLoraTargets},
    {"fsdp_train_unembed", kLoraTargets},
    {"qwen_gated_deltanet_full_lora", kLoraTargets},
    {"attn_implementation", "has no effect: attention has one implementation here"},
    {"quantization", "has no effect: weights_dtype sets the type of the weights (auto, f32, bf16)"},
    {"colocate", kOneCopy},
    {"sampling_memory_fraction", kOneCopy},
    {"sampling_max_model_len", "has no effect: max_model_len applies to training and sampling"},
    {"sampling_enforce_eager", "has no effect: cuda_graphs decides whether graphs are used"},
    {"enable_auto_tool_choice", kToolCalls},
    {"tool_call_parser", kToolCalls},
    {"reasoning_parser", kToolCalls},
});

void check_colocate(MapReader& model, const LegacyContext& context) {
  bool colocate = false;
  int tensor_parallel = 1, data_parallel = 1;
  model.boolean("colocate", colocate);
  model.integer("tensor_parallel_size", tensor_parallel, 1);
  model.integer("data_parallel_size", data_parallel, 1);
  if (!colocate) return;
  if (tensor_parallel != 1)
    model.error("colocate", "needs tensor_parallel_size 1; remove both keys, they have no effect here");
  if (data_parallel != 1)
    model.error("colocate", "needs data_parallel_size 1; remove both keys, they have no effect here");
  if (!context.training || !context.sampling) model.error("colocate", "needs the capabilities training and sampling");
  if (context.models != 1) model.error("colocate", "is for a single model; remove the key, it has no effect here");
}

void check_rank_slots(MapReader& model, std::optional<int> max_lora_rank, bool fsdp) {
  constexpr std::string_view kKey = "fsdp_rank_slots";
  const Node* node = model.take(kKey);
  if (node == nullptr) return;
  if (!node->is_map() || node->entries.empty()) return model.error(kKey, "must map ranks to counts, at least one");
  std::set<int64_t> ranks;
  for (const Node::Entry& entry : node->entries) {
    const auto rank = parse_whole_number(entry.key);
    const auto count = entry.value.is_scalar() ? parse_whole_number(entry.value.text) : std::nullopt;
    if (!rank || *rank < 1 || !count || *count < 1) {
      return model.problems().error(entry.line, model.path_of(kKey), "ranks and counts must be whole numbers >= 1");
    }
    ranks.insert(*rank);
  }
  if (fsdp && max_lora_rank && *ranks.rbegin() != *max_lora_rank) {
    model.error(kKey, "its highest rank must be max_lora_rank (" + std::to_string(*max_lora_rank) + ")");
  }
}

// Returns the names in a list of targets, or nothing if the key is absent. Reports blank and repeated names.
std::optional<std::set<std::string>> read_targets(MapReader& model, std::string_view key, bool may_be_empty) {
  const Node* node = model.take(key);
  if (node == nullptr) return std::nullopt;
  std::set<std::string> names;
  if (!node->is_list() || (node->items.empty() && !may_be_empty)) {
    model.error(key, "must be a list of names with at least one entry");
    return std::nullopt;
  }
  for (const Node& item : node->items) {
    const size_t first = item.text.find_first_not_of(" \t");
    const size_t last = item.text.find_last_not_of(" \t");
    if (!item.is_scalar() || first == std::string::npos) {
      model.problems().error(item.line, model.path_of(key), "holds a blank name");
    } else if (!names.insert(item.text.substr(first, last - first + 1)).second) {
      model.problems().error(item.line, model.path_of(key), "names a target twice");
    }
  }
  return names;
}

void check_fsdp(MapReader& model, const LegacyContext& context) {
  const bool fsdp = model.one_of("training_backend", {"hf", "fsdp"}) == size_t{1};
  bool qv_only = false;
  model.boolean("fsdp_qv_only", qv_only);
  check_rank_slots(model, context.max_lora_rank, fsdp);
  const auto modules = read_targets(model, "fsdp_target_modules", false);
  const auto parameters = read_targets(model, "fsdp_target_parameters", true);
  const bool modules_are_qv = modules && *modules == std::set<std::string>{"q_proj", "v_proj"};
  if (qv_only && !fsdp) model.error("fsdp_qv_only", "needs training_backend: fsdp");
  if (qv_only && ((modules && !modules_are_qv) || (parameters && !parameters->empty()))) {
    model.error("fsdp_qv_only", "contradicts the explicit targets; remove one of the two");
  }
  if (!qv_only && modules_are_qv) model.error("fsdp_target_modules", "q_proj and v_proj alone need fsdp_qv_only: true");
}

void check_tool_calls(MapReader& model) {
  bool automatic = false;
  std::string parser;
  model.boolean("enable_auto_tool_choice", automatic);
  if (!model.text("tool_call_parser", parser) && automatic) {
    model.error("enable_auto_tool_choice", "needs a tool_call_parser");
  }
}

}  // namespace

void read_legacy_model_keys(MapReader& model, const LegacyContext& context) {
  check_colocate(model, context);
  check_fsdp(model, context);
  check_tool_calls(model);
  for (const LegacyKey& key : kLegacyKeys) {
    if (model.take(key.name) == nullptr) continue;
    model.problems().warning_once(model.line_of(key.name), model.path_of(key.name), key.name, key.advice);
  }
}

}  // namespace tuft::config
