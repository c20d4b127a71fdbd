// The state of a request and of its sequences inside the sampler. Internal to the sampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/sample/sampler.h"
#include "engine/sample/stop_text.h"

namespace tuft::engine {

// An adapter that active requests use.
struct AdapterUse {
  int requests = 0;
  uint64_t last_step = 0;  // in which it was counted
};

struct Request;

// One sample, from its first token to its last.
struct Running {
  Request* request = nullptr;
  int sample = 0;
  std::optional<SequenceId> sequence;  // none while preempted
  // Prompt and output without the newest token, while they are not all in the cache (again).
  std::vector<int32_t> replay;
  size_t replay_fed = 0;
  int32_t last = 0;     // sampled, not fed yet
  int32_t next = 0;     // sampled in the step that feeds `last`
  Nanos last_time = 0;  // when `last` was sampled
  Nanos preempted = 0;  // start of the preemption; 0: not preempted
  StopText stop_text;
  bool fresh = false;  // `last` came in this step
  bool finished = false;

  inline explicit Running(Request& owner);
};

struct Request {
  uint64_t number = 0;
  SampleRequest what;
  Sampler::Done done;
  uint64_t scope = 0;
  uint64_t seed = 0;
  int output_max = 0;  // tokens of one sample
  SampleTimes times;
  AdapterUse* adapter = nullptr;  // while active, unless it samples from the base model

  // The prompt's sequence. The last sample continues in it; the earlier ones are forks of it.
  std::optional<SequenceId> stem;
  size_t prompt_fed = 0;
  bool prompt_was_done = false;                   // stays true if the stem is released
  std::vector<float> prompt_logits;               // of the last prompt token, for the first token of each sample
  std::vector<std::unique_ptr<Running>> running;  // in order of their samples
  int samples_started = 0;
  int samples_finished = 0;
  SampleResult result;
  std::optional<Error> failure;  // the answer, after the step
  std::vector<size_t> streamed;  // number of tokens that on_tokens has received, by sample; empty without on_tokens

  bool wants_prompt_rows() const { return what.prompt_logprobs || what.topk_prompt_logprobs > 0; }
  bool finished() const { return samples_finished == what.num_samples; }
  // Returns how many leading prompt tokens may come from the cache: their log-probabilities are known or not needed.
  size_t prompt_rows_known() const {
    if (!wants_prompt_rows()) return what.prompt.size();
    return what.prompt_logprobs ? result.prompt_logprobs.size() : result.topk_prompt_logprobs.size();
  }
  void fail(Error error) {
    if (!failure) failure = std::move(error);
  }
};

Running::Running(Request& owner) : request(&owner), stop_text(owner.what.params.stop_strings) {}

// One feed of a step: tokens of a running sequence, or a piece of a prompt.
struct Slot {
  Running* running = nullptr;
  Request* prompt = nullptr;
  size_t tokens = 1;

  Request& request() const { return running != nullptr ? *running->request : *prompt; }
};

}  // namespace tuft::engine
