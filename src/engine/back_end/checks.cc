#include "engine/back_end/checks.h"

#include <cmath>
#include <set>
#include <string>

#include "base/check.h"
#include "base/error.h"

namespace tuft::engine {
namespace {

Status check_segments(const Pack& pack) {
  int row = 0;
  for (const Segment& segment : pack.segments) {
    if (segment.begin != row || segment.end <= segment.begin) {
      return invalid_argument("the segments of a pack must cover its tokens in order, without gaps", "pack_segments");
    }
    if (!std::isfinite(segment.temperature) || segment.temperature <= 0) {
      return invalid_argument("a segment's temperature must be finite and greater than 0", "pack_segments");
    }
    row = segment.end;
  }
  if (row == static_cast<int>(pack.tokens.size()) && row > 0) return {};
  return invalid_argument("a pack needs at least one token, and its segments must cover all tokens", "pack_segments");
}

Status check_tokens(const ModelSpec& model, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= model.vocab_size) {
      return invalid_argument("a token is outside the model's vocabulary of " + std::to_string(model.vocab_size) +
                                  ": use the base model's tokenizer",
                              "token_range");
    }
  }
  return {};
}

bool in_range(const DimuonParams& params) {
  return std::isfinite(params.learning_rate) && params.beta1 >= 0 && params.beta1 < 1;
}

bool in_range(const AdamParams& params) {
  return std::isfinite(params.learning_rate) && std::isfinite(params.weight_decay) && params.eps >= 0 &&
         params.beta1 >= 0 && params.beta1 < 1 && params.beta2 >= 0 && params.beta2 < 1;
}

}  // namespace

Status check_forward(const ModelSpec& model, const Pack& pack, std::span<const float> logprobs) {
  TUFT_TRY(check_segments(pack));
  TUFT_TRY(check_tokens(model, pack.tokens));
  int last = 0;
  for (const Target& target : pack.targets) {
    if (target.row < last || target.row >= static_cast<int>(pack.tokens.size())) {
      return invalid_argument("the targets of a pack must be ordered by row and within its rows", "pack_targets");
    }
    last = target.row;
    TUFT_TRY(check_tokens(model, {&target.token, 1}));
  }
  if (logprobs.size() == pack.targets.size()) return {};
  return invalid_argument("a pass needs room for one log-probability per target", "pack_targets");
}

Status check_backward(bool kept, size_t targets, std::span<const float> gradient) {
  if (!kept) {
    return failed_precondition(
        "backward() needs a retained forward pass: call forward() with keep first, and do "
        "not load or remove its adapters in between",
        "no_forward");
  }
  if (gradient.size() == targets) return {};
  return invalid_argument("backward() needs one gradient per target of the forward pass", "pack_targets");
}

std::vector<Status> check_steps(std::span<const AdapterStep> steps) {
  std::vector<Status> all;
  std::set<AdapterId> seen;
  for (const AdapterStep& step : steps) {
    TUFT_CHECK(std::visit([](const auto& params) { return in_range(params); }, step.params),
               "parameters of steps are checked before they reach the engine");
    const bool is_new = seen.insert(step.adapter).second;
    all.push_back(is_new ? Status() : invalid_argument("an adapter may step only once in a call", "step_twice"));
  }
  return all;
}

Optimizer optimizer_of(const OptimParams& params) {
  return std::holds_alternative<DimuonParams>(params) ? Optimizer::kDimuon : Optimizer::kAdamW;
}

Status check_optimizer(Optimizer optimizer, const OptimParams& params) {
  if (optimizer == optimizer_of(params)) return {};
  return invalid_argument("this model trains with " + std::string(optimizer_name(optimizer)) +
                              "; the step has the parameters of " + std::string(optimizer_name(optimizer_of(params))),
                          "optimizer_mismatch");
}

Status check_feed(const ModelSpec& model, const Feed& feed) {
  const auto count = static_cast<int>(feed.tokens.size());
  if (count == 0 || feed.logits < 0 || feed.logits > count) {
    return invalid_argument("a feed needs at least one token, and at most as many logits as tokens", "feed_size");
  }
  return check_tokens(model, feed.tokens);
}

Error no_mark() {
  return failed_precondition("the adapter's gradient was not marked: call mark_gradients() first", "no_mark");
}

Error no_block_left() {
  return {ErrorCode::kResourceExhausted, "the KV cache has no block left for another sequence", "kv_cache_full"};
}

Error kv_cache_full(const KvUsage& usage) {
  return {ErrorCode::kResourceExhausted,
          "the KV cache is full: its limit is " + std::to_string(usage.limit) + " bytes, and open sequences hold " +
              std::to_string(usage.used),
          "kv_cache_full"};
}

Error out_of_memory(const char* what) {
  return {ErrorCode::kResourceExhausted,
          std::string("not enough memory for ") + what + ": send fewer or shorter sequences at a time", "memory"};
}

}  // namespace tuft::engine
