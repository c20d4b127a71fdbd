// Text generation without a sampling session, for the OpenAI-compatible endpoints: the answer is delivered while it is
// generated.
//
// Thread-safe. Adapters, access checks, quotas and metrics are those of sampling sessions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_account.h"
#include "base/result.h"
#include "config/config.h"
#include "control/types/types.h"
#include "telemetry/context.h"

namespace tuft::control {

struct GenerationRequest {
  std::string model;  // a base model's name, a tinker:// checkpoint, or a sampler's id
  std::vector<int32_t> prompt_tokens;
  int num_samples = 1;
  tinker_public::SamplingParams params;
  bool prompt_logprobs = false;
  int topk_prompt_logprobs = 0;
  int topk_logprobs = 0;                 // alternatives for each sampled token
  RequestId request = {};                // of its spans and logs
  telemetry::SpanContext previous = {};  // of request tracing: the stage before the worker's first one
};

// The model that a request names.
struct GenerationModel {
  std::string base_model;
  const config::ModelConfig* config = nullptr;  // lives as long as the control plane
  std::string tinker_path;                      // empty: the base model itself
};

// New tokens of one sample.
struct GenerationDelta {
  int sample = 0;
  std::span<const int32_t> tokens;
  std::span<const float> logprobs;  // one each
  // The alternatives of each token, most likely first.
  int topk = 0;
  std::span<const int32_t> topk_tokens;  // tokens * topk
  std::span<const float> topk_logprobs;
};

struct GenerationListener {
  // Called in order for each sample, by one thread at a time, never after `done`. Must not block. May be empty.
  std::function<void(const GenerationDelta&)> on_tokens;
  // Called once with the whole answer, perhaps before start() returns.
  std::function<void(Result<tinker_public::SampleResponse>)> done;
};

// A model as /models lists it.
struct ListedModel {
  std::string id;      // its name in requests
  UserId owner;        // empty: a base model
  std::string parent;  // the base model of a checkpoint
  bool is_public = true;
  int64_t created = 0;  // unix seconds
};

// A page of the list of models.
struct ListedModels {
  std::vector<ListedModel> models;
  bool has_more = false;
};

class Generation {
 public:
  virtual ~Generation() = default;

  // Returns what `model` means to this user. kNotFound for unknown models and for those of others (the same message).
  virtual Result<GenerationModel> resolve(const UserId& user, std::string_view model) const = 0;
  // Lists the base models, then the user's own sampler checkpoints, newest first: at most `count_max` models after the
  // model `after` (empty: from the first). Costs what it returns. kInvalidArgument if `after` is not in the list.
  virtual Result<ListedModels> models(const UserId& user, std::string_view after, size_t count_max) const = 0;
  // Returns a model that resolve() finds, whether it is in the list or not. The same errors.
  virtual Result<ListedModel> listed(const UserId& user, std::string_view model) const = 0;

  // Charges the memory of a request that is not started yet to the user, as start() does, while the Hold exists.
  // kResourceExhausted and kPayloadTooLarge name limits.queued_bytes_per_user_max.
  virtual Result<ByteAccount::Hold> hold_memory(const UserId& user, int64_t bytes) = 0;

  using Number = uint64_t;
  // Starts to generate. The errors of resolve() and hold_memory(), and kInvalidArgument for the request.
  virtual Result<Number> start(const UserId& user, GenerationRequest request, const telemetry::SpanContext& trace,
                               GenerationListener listener) = 0;
  // Cancels a generation: `done` gets kCancelled. Unknown numbers are ignored.
  virtual void cancel(Number number) = 0;
};

}  // namespace tuft::control
