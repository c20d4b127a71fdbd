// What the sampler keeps of a request and of each sequence that it runs. Internal to the sampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/sample/sampler.h"
#include "engine/sample/stop_text.h"

namespace tuft::engine {

// An adapter that active requests use.
struct AdapterUse {
  int requests = 0;
  uint64_t last_step = 0;  // that it was counted in
};

struct Request {
  uint64_t number = 0;
  SampleRequest what;
  Sampler::Done done;
  uint64_t seed = 0;
  int output_max = 0;  // tokens of one sample
  SampleTimes times;
  AdapterUse* adapter = nullptr;  // while active, unless it samples from the base model

  // The prompt's sequence. The last sample goes on in it; the ones before are forks of it.
  SequenceId stem = 0;
  bool stem_open = false;
  size_t prompt_fed = 0;
  std::vector<float> prompt_logits;  // of the last prompt token, for the first token of each sample
  int samples_started = 0;
  int samples_finished = 0;
  SampleResult result;
  std::vector<size_t> streamed;  // tokens of each sample that on_tokens has had; empty without on_tokens

  bool prompt_done() const { return prompt_fed == what.prompt.size(); }
  bool wants_prompt_rows() const { return what.prompt_logprobs || what.topk_prompt_logprobs > 0; }
  bool finished() const { return samples_finished == what.num_samples; }
};

struct Running {
  Request* request = nullptr;
  int sample = 0;
  SequenceId sequence = 0;
  int32_t last = 0;     // sampled, not fed yet
  Nanos last_time = 0;  // when
  StopText stop_text;
  bool fresh = false;  // `last` came in this step
  bool finished = false;

  explicit Running(Request& owner) : request(&owner), stop_text(owner.what.params.stop_strings) {}
};

// One feed of a step: the last token of a running sequence, or a piece of a prompt.
struct Slot {
  Running* running = nullptr;
  Request* prompt = nullptr;
  size_t tokens = 1;
};

}  // namespace tuft::engine
