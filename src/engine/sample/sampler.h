// Sampler: the part of the worker that draws tokens (continuous batching). It is neither a sampling session, which is a
// client's handle, nor a frozen adapter, which is a version. Every step() feeds each running sequence its next token,
// and pieces of new prompts within a token budget, and draws from the logits.
//
// The KV cache is shared. A prompt reuses what an earlier one of the same adapter and scope left in it. When the cache
// is full, the youngest sequences of the tenant that holds most release their blocks and are fed again later; the
// oldest one always continues. Tenants (scopes) share places, tokens and blocks (schedule.h).
//
// A lack of memory is an error of the operation that needed it ("out_of_memory"), not an exception: of a request that
// cannot be accepted or streamed, or of those in the step that cannot be planned or run.
//
// The result of a request depends only on its prompt, parameters and seed: not on other requests, on the contents of
// the cache, or on preemptions. Confined to the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/adapter_store.h"
#include "engine/decode_engine.h"
#include "engine/model_spec.h"
#include "telemetry/context.h"

namespace tuft::engine {

struct SamplingParams {
  std::optional<int> max_tokens;  // absent: until stop or max_model_len
  std::optional<uint64_t> seed;   // absent: random
  float temperature = 1.0F;       // 0: the most likely token
  int top_k = -1;                 // -1 (or 0): off
  float top_p = 1.0F;
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_tokens;
  bool ends_at_eos = true;  // the model's end tokens stop the sample, too
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// Receives the newest tokens of one sample with their log-probabilities and, if topk_logprobs requests them, their
// alternatives (else `topk` is empty). Called from step() on the engine thread, in order for each sample, before
// `done`. Must not call the sampler.
using OnTokens = std::function<void(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
                                    std::span<const std::vector<TokenLogprob>> topk)>;

// Tokens whose log-probabilities are requested at positions of a prompt: row i is about position i + 1.
struct PromptTargets {
  std::vector<int32_t> tokens;     // -1: nothing is requested. Empty: there are no targets
  std::vector<size_t> row_begins;  // of each row in `tokens`, and the end of the last one; as many as prompt tokens
};

struct SampleRequest {
  std::optional<AdapterId> adapter;  // absent: the base model
  std::string scope;                 // of a tenant; prefixes are reused within one scope only, and scopes take turns
  std::vector<int32_t> prompt;       // >= 1 token
  int num_samples = 1;
  SamplingParams params;
  bool prompt_logprobs = false;
  int topk_prompt_logprobs = 0;
  int prompt_logprobs_last_n = 0;     // of both: only so many last positions; 0: all
  int prompt_alt_tokens = 0;          // tokens to draw at each prompt position after the first
  PromptTargets prompt_targets = {};  // may come with any of the others
  int topk_logprobs = 0;              // alternatives for each sampled token
  OnTokens on_tokens;                 // may be empty
  Nanos arrived = 0;                  // in the worker; 0: at submit()
  telemetry::SpanContext trace = {};  // for log records about the request
};

enum class StopReason : uint8_t { kStop, kLength };

struct SampledSequence {
  StopReason reason = StopReason::kLength;
  std::vector<int32_t> tokens;  // including the stop token, or the tokens of the stop string
  std::vector<float> logprobs;  // of the model at temperature 1, before top_k and top_p; one per token
  // The most likely tokens at the position of each token, most likely first; empty if not requested.
  std::vector<std::vector<TokenLogprob>> topk_logprobs;
};

// The times of a sample, in the time of Clock::monotonic().
struct SampleTimes {
  Nanos arrived = 0;
  Nanos started = 0;      // the first prompt token ran
  Nanos first_token = 0;  // the first token was sampled; the end if none was requested
  Nanos ended = 0;

  double queue_seconds() const { return to_seconds(started - arrived); }
  double prefill_seconds() const { return to_seconds(first_token - started); }
  double decode_seconds() const { return to_seconds(ended - first_token); }
};

// A period in which one sequence of a request had no blocks of the KV cache.
struct Interruption {
  Nanos preempted = 0;
  Nanos resumed = 0;
  int tokens = 0;  // length of the sequence
};
inline constexpr size_t kInterruptionsMax = 8;

struct SampleResult {
  std::vector<SampledSequence> sequences;
  // One for each prompt token, the first one included; empty if not requested. Positions without an answer have NaN and
  // an empty row. Most likely first.
  std::vector<float> prompt_logprobs;
  std::vector<std::vector<TokenLogprob>> topk_prompt_logprobs;
  std::vector<float> target_logprobs;  // one for each of the targets; 0 where nothing was requested
  // Independent draws at the request's temperature, before top_k and top_p, with the model's log-probabilities:
  // prompt_alt_tokens for each position after the first.
  std::vector<TokenLogprob> prompt_alt_tokens;
  int cached_tokens = 0;  // prompt tokens that were reused, not computed
  int preemptions = 0;
  std::vector<Interruption> interruptions;  // the first kInterruptionsMax of them
  SampleTimes times;
};

struct SamplerOptions {
  int batch_tokens = 256;   // per step; every running sequence gets its token first, prompts get the rest
  int tokens_max = 0;       // max_model_len: prompt + output
  int sequences_max = 256;  // running at once
  int queue_max = 4096;     // waiting; above it submit() returns kResourceExhausted
  // For metrics: the label base_model, and the possible size of the KV cache in bytes if the engine sets no limit (0:
  // unknown).
  std::string base_model = {};
  int64_t memory_bytes = 0;
};

// Returns the bytes of a token. The sampler looks for stop strings in their concatenation.
using TokenBytes = std::function<std::string(int32_t token)>;

class Sampler {
 public:
  using Done = std::function<void(Result<SampleResult>)>;
  using RequestNumber = uint64_t;

  virtual ~Sampler() = default;
  // Queues a request. Returns kInvalidArgument, with the field, for a malformed one. Calls `done` once, from step() or
  // cancel(); it may submit and cancel, and must not throw.
  virtual Result<RequestNumber> submit(SampleRequest request, Done done) = 0;
  // `done` receives kCancelled. Unknown numbers are ignored.
  virtual void cancel(RequestNumber request) = 0;
  virtual bool idle() const = 0;
  // Runs one step. If it fails, the requests in it fail, and the others continue.
  virtual void step() = 0;
  virtual int running() const = 0;  // sequences that have a place, including those that wait for blocks
  virtual int active() const = 0;   // requests that have started, and the first one of each tenant
  virtual int waiting() const = 0;  // the other requests
  // The numbers of requests that wait for their first step, compute their prompt, and draw tokens.
  struct Phases {
    size_t pending = 0;
    size_t prefilling = 0;
    size_t decoding = 0;
  };
  virtual Phases phases() const = 0;
  // The end of the newest step; 0 before the first.
  virtual Nanos last_step_end() const = 0;
  // Reports that the engine does other work now: metrics do not count the time until the next step as sampling.
  virtual void pause() = 0;
};

// `token_bytes` may be empty; then requests with stop strings are refused. All references must outlive the sampler.
std::unique_ptr<Sampler> make_sampler(const ModelSpec& model, const AdapterStore& adapters, DecodeEngine& engine,
                                      const SamplerOptions& options, TokenBytes token_bytes, const Clock& clock);

}  // namespace tuft::engine
