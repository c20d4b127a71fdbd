// Sampling from many prompts at once: every step() feeds each running sequence its next token (and pieces of new
// prompts under a token budget) and draws from the logits.
//
// The KV cache is shared. A prompt takes over what an earlier one of the same adapter and scope left in it. When it is
// full the youngest sequences give their blocks back and are fed again later; the oldest one always goes on.
//
// A request's result depends on its prompt, its parameters and its seed only: not on what else is running, what was in
// the cache, or whether it had to give its blocks back. Confined to the engine thread.
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
#include "engine/engine.h"
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
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// The newest tokens of one sample, with their log-probabilities and, where topk_logprobs asks for them, their
// alternatives (else `topk` is empty). Called from step() on the engine thread, in order for each sample, before
// `done`; must not call the sampler.
using OnTokens = std::function<void(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
                                    std::span<const std::vector<TokenLogprob>> topk)>;

struct SampleRequest {
  std::optional<AdapterId> adapter;  // absent: the base model
  std::string scope;                 // a tenant: prefixes are taken over within one scope only
  std::vector<int32_t> prompt;       // >= 1 token
  int num_samples = 1;
  SamplingParams params;
  bool prompt_logprobs = false;
  int topk_prompt_logprobs = 0;
  int topk_logprobs = 0;              // alternatives for each sampled token
  OnTokens on_tokens;                 // may be empty
  Nanos arrived = 0;                  // in the worker; 0: at submit()
  telemetry::SpanContext trace = {};  // of log records about it
};

enum class StopReason : uint8_t { kStop, kLength };

struct SampledSequence {
  StopReason reason = StopReason::kLength;
  std::vector<int32_t> tokens;  // with the stop token, or the tokens that made up the stop string
  std::vector<float> logprobs;  // of the model at temperature 1, before top_k and top_p; one per token
  // The most likely tokens in the place of each one, most likely first; empty where not asked for.
  std::vector<std::vector<TokenLogprob>> topk_logprobs;
};

// Clock::monotonic() terms.
struct SampleTimes {
  Nanos arrived = 0;
  Nanos started = 0;      // the first prompt token ran
  Nanos first_token = 0;  // the first token was sampled; the end where none was asked for
  Nanos ended = 0;

  double queue_seconds() const { return to_seconds(started - arrived); }
  double prefill_seconds() const { return to_seconds(first_token - started); }
  double decode_seconds() const { return to_seconds(ended - first_token); }
};

// One of a request's sequences gave its blocks back, and had them again.
struct Interruption {
  Nanos preempted = 0;
  Nanos resumed = 0;
  int tokens = 0;  // that it had
};
inline constexpr size_t kInterruptionsMax = 8;

struct SampleResult {
  std::vector<SampledSequence> sequences;
  std::vector<float> prompt_logprobs;                           // [0] is NaN; empty where not asked for
  std::vector<std::vector<TokenLogprob>> topk_prompt_logprobs;  // [0] is empty; most likely first
  int cached_tokens = 0;                                        // of the prompt: taken over, not computed
  int preemptions = 0;
  std::vector<Interruption> interruptions;  // the first kInterruptionsMax of them
  SampleTimes times;
};

struct SamplerOptions {
  int batch_tokens = 256;   // of one step; every running sequence gets its token first, prompts get the rest
  int tokens_max = 0;       // max_model_len: prompt + output
  int sequences_max = 256;  // running at once
  int queue_max = 4096;     // waiting; over it submit() refuses with kResourceExhausted
  // Of metrics: the label base_model, and what the KV cache can grow to where the engine sets no limit (0: unknown).
  std::string base_model = {};
  int64_t memory_bytes = 0;
};

// Text of a token sequence so far, for stop strings: bytes of token i, appended by the caller.
using TokenBytes = std::function<std::string(int32_t token)>;

class Sampler {
 public:
  using Done = std::function<void(Result<SampleResult>)>;
  using RequestNumber = uint64_t;

  virtual ~Sampler() = default;
  // Checks the request (kInvalidArgument names the field) and queues it. `done` is called once, from step() or
  // cancel(), and may itself submit and cancel.
  virtual Result<RequestNumber> submit(SampleRequest request, Done done) = 0;
  virtual void cancel(RequestNumber request) = 0;  // done gets kCancelled; unknown numbers are ignored
  virtual bool idle() const = 0;
  // Runs one step of everything that is running. A failing step fails the requests in it and leaves the others.
  virtual void step() = 0;
  virtual int running() const = 0;  // sequences that have a place, also while they wait for blocks
  virtual int active() const = 0;   // requests that have started
  virtual int waiting() const = 0;  // requests that have not
  // When the newest step ended; 0 before the first.
  virtual Nanos last_step_end() const = 0;
  // The engine does something else now: the time until the next step is not the sampler's own.
  virtual void pause() = 0;
};

// `token_bytes` may be empty: then stop strings are refused. The engine, clock and functions outlive the sampler.
std::unique_ptr<Sampler> make_sampler(Engine& engine, const SamplerOptions& options, TokenBytes token_bytes,
                                      const Clock& clock);

}  // namespace tuft::engine
