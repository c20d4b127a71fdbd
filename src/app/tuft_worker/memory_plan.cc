#include "app/tuft_worker/memory_plan.h"

#include <algorithm>
#include <string>

namespace tuft::app {
namespace {

// Fractions of this worker's share of the free memory; adapters, gradients and training passes need the rest.
constexpr double kReasonable = 0.5;
constexpr double kMost = 0.8;
constexpr int64_t kLeastTokens = 64;

std::string sum(const KvCacheNeed& need, int64_t tokens) {
  return std::to_string(tokens) + " tokens x " + std::to_string(need.bytes_per_token) +
         " bytes = " + std::to_string(tokens * need.bytes_per_token) + " bytes";
}

}  // namespace

Result<int64_t> plan_kv_cache(const KvCacheNeed& need) {
  const int64_t least = kLeastTokens * need.bytes_per_token;
  if (need.asked > 0) {
    if (need.free > 0 && need.asked > need.free) {
      return invalid_argument("kv_cache_bytes is " + std::to_string(need.asked) + ", but next to the weights only " +
                                  std::to_string(need.free) + " bytes of memory are free: lower it",
                              "memory_plan");
    }
    if (need.asked < least) {
      return invalid_argument("kv_cache_bytes is " + std::to_string(need.asked) +
                                  ", but the smallest useful cache is " + sum(need, kLeastTokens) +
                                  ": raise it, or leave it out",
                              "memory_plan");
    }
    return need.asked;
  }
  if (need.free <= 0) return 0;
  const double mine = static_cast<double>(need.free) * need.share;
  const auto reasonable = static_cast<int64_t>(mine * kReasonable);
  const auto most = static_cast<int64_t>(mine * kMost);
  const int64_t longest = (need.tokens_max + kLeastTokens) * need.bytes_per_token;
  const int64_t planned = std::max(reasonable, std::min(longest, most));
  if (planned < least) {
    return invalid_argument("the KV cache needs at least " + sum(need, kLeastTokens) + ", but this worker's share of " +
                                std::to_string(need.free) + " free bytes is " +
                                std::to_string(static_cast<int64_t>(mine)) +
                                ": use a smaller model, fewer models, or weights_dtype bf16",
                            "memory_plan");
  }
  return planned;
}

Result<int64_t> plan_adapters(const AdapterNeed& need) {
  const int64_t least = need.training + need.sampler;
  const std::string largest = "an adapter of max_lora_rank takes " + std::to_string(need.training) +
                              " bytes to be trained, and " + std::to_string(need.sampler) +
                              " as a published version: " + std::to_string(least) + " bytes";
  if (need.asked > 0) {
    const int64_t left = need.free - need.kv_cache;
    if (need.free > 0 && need.asked > left) {
      return invalid_argument("adapter_memory_bytes is " + std::to_string(need.asked) +
                                  ", but next to the weights and a KV cache of " + std::to_string(need.kv_cache) +
                                  " only " + std::to_string(left) + " bytes of memory are free: lower one of them",
                              "memory_plan");
    }
    if (need.asked < least) {
      return invalid_argument("adapter_memory_bytes is " + std::to_string(need.asked) + ", but " + largest +
                                  ": raise it, or lower max_lora_rank",
                              "memory_plan");
    }
    return need.asked;
  }
  if (need.free <= 0) return 0;
  const int64_t left = static_cast<int64_t>(static_cast<double>(need.free) * need.share) - need.kv_cache;
  const int64_t planned = std::max(left / 2, least);
  if (planned > left) {
    return invalid_argument(largest + ", but this worker's share of the free memory leaves " + std::to_string(left) +
                                " bytes next to its KV cache: lower max_lora_rank or kv_cache_bytes",
                            "memory_plan");
  }
  return planned;
}

}  // namespace tuft::app
