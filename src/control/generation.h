// Sampling without a session: what the OpenAI-compatible endpoints ask for. The answer comes as it is made.
//
// Thread-safe. The same adapters, access checks, quotas and metrics as samplers have.
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
#include "control/types.h"
#include "telemetry/context.h"

namespace tuft::control {

struct GenerationRequest {
  std::string model;  // a base model's name, a tinker:// checkpoint, or a sampler's id
  std::vector<int32_t> prompt_tokens;
  int num_samples = 1;
  tinker_public::SamplingParams params;
  bool prompt_logprobs = false;
  int topk_prompt_logprobs = 0;
  int topk_logprobs = 0;   // alternatives for each sampled token
  RequestId request = {};  // by which its spans and logs are found
};

// What `model` means to this user.
struct GenerationModel {
  std::string base_model;
  const config::ModelConfig* config = nullptr;  // lives as long as the control plane
  std::string tinker_path;                      // empty: the base model itself
};

// New tokens of one of the samples.
struct GenerationDelta {
  int sample = 0;
  std::span<const int32_t> tokens;
  std::span<const float> logprobs;  // one each
  // Their alternatives, row by row, most likely first.
  int topk = 0;
  std::span<const int32_t> topk_tokens;  // tokens * topk
  std::span<const float> topk_logprobs;
};

struct GenerationListener {
  // In order for each sample, on one thread at a time, never after `done`. Do little, never block. May be empty.
  std::function<void(const GenerationDelta&)> on_tokens;
  // Once: the whole answer. Perhaps before start() returns.
  std::function<void(Result<tinker_public::SampleResponse>)> done;
};

// A model as /models lists it.
struct ListedModel {
  std::string id;      // what requests name it by
  UserId owner;        // empty: a base model
  std::string parent;  // the base model of a checkpoint
  bool is_public = true;
  int64_t created = 0;  // unix seconds
};

// A piece of the list of models.
struct ListedModels {
  std::vector<ListedModel> models;
  bool has_more = false;
};

class Generation {
 public:
  virtual ~Generation() = default;

  // kNotFound for unknown and foreign ones alike.
  virtual Result<GenerationModel> resolve(const UserId& user, std::string_view model) const = 0;
  // Base models, then the user's own sampler checkpoints, newest first: `count_max` at most of those after the model
  // `after` (empty: from the first). Costs what it gives. kInvalidArgument where `after` is not in the list.
  virtual Result<ListedModels> models(const UserId& user, std::string_view after, size_t count_max) const = 0;
  // One that resolve() finds, whether it is in the list or not; the same errors.
  virtual Result<ListedModel> listed(const UserId& user, std::string_view model) const = 0;

  // Memory of a request that is not started yet, in the account from which start() takes its own: for as long as it is
  // held. kResourceExhausted, kPayloadTooLarge: they name limits.queued_bytes_per_user_max.
  virtual Result<ByteAccount::Hold> hold_memory(const UserId& user, int64_t bytes) = 0;

  using Number = uint64_t;
  virtual Result<Number> start(const UserId& user, GenerationRequest request, const telemetry::SpanContext& trace,
                               GenerationListener listener) = 0;
  // Nobody waits any more: `done` gets kCancelled. Unknown numbers are ignored.
  virtual void cancel(Number number) = 0;
};

}  // namespace tuft::control
