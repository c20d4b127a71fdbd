// The state of a request and of its sequences inside the sampler. Internal to the sampler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/sample/draws.h"
#include "engine/sample/sampler.h"
#include "engine/sample/stop_text.h"

namespace tuft::engine {

// The cost of a prompt token with logits, in tokens without: the product with the whole vocabulary, and its ranking.
//
// A drawn token counts as one, whatever its top_k and top_p are. With 151,936 logits a row takes a thread 0.63 ms with
// plain parameters, 1.14 ms with top_k 150,000, and 1.36 ms with top_p 0.9 (tuft_draws_bench), and the engine's threads
// share the rows. The output layer alone has 0.31 GFLOP for the row of a model with 1,024 hidden values, which is 3.3
// ms at the 94 GFLOP/s of two threads (bench/results, decode), so that the most expensive parameters make a row of the
// native engine at most 1.15 times as expensive. GPUs were not measured. Targets of a prompt position are a subtraction
// each; a token that is drawn for it reads about a thousandth of the row. What attention adds, for all tokens:
// Schedule.
inline constexpr size_t kRowCost = 4;

// An adapter that active requests use.
struct AdapterUse {
  int requests = 0;
  uint64_t last_step = 0;  // in which it was counted
};

struct Request;
struct Tenant;

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
  uint64_t planned = 0;  // the newest step that feeds it
  bool fresh = false;    // `last` came in this step
  bool finished = false;

  inline explicit Running(Request& owner);
  // Returns how many of its tokens are in the cache.
  inline size_t length() const;
};

struct Request {
  uint64_t number = 0;
  SampleRequest what;
  Sampler::Done done;
  uint64_t scope = 0;        // of its tenant
  Tenant* tenant = nullptr;  // while the schedule has it
  uint64_t seed = 0;
  int output_max = 0;  // tokens of one sample
  SampleTimes times;
  AdapterUse* adapter = nullptr;  // while active, unless it samples from the base model

  // The prompt's sequence. The last sample continues in it; the earlier ones are forks of it.
  std::optional<SequenceId> stem;
  size_t prompt_fed = 0;
  size_t first_scored = 0;                        // the first position with a score; the prompt's size: none
  size_t rows_known = 0;                          // positions before it are scored, or need no score
  uint64_t planned = 0;                           // the newest step that feeds the prompt
  bool prompt_was_done = false;                   // stays true if the stem is released
  std::vector<float> prompt_logits;               // of the last prompt token, for the first token of each sample
  std::vector<std::unique_ptr<Running>> running;  // in order of their samples
  std::deque<Drawn> first_tokens;                 // of the samples that start next
  int samples_started = 0;
  int samples_finished = 0;
  SampleResult result;
  std::optional<Error> failure;  // the answer, after the step
  std::vector<size_t> streamed;  // number of tokens that on_tokens has received, by sample; empty without on_tokens

  // Returns how many leading tokens of the prompt have no row that is scored.
  size_t plain_tokens() const { return first_scored == what.prompt.size() ? first_scored : first_scored - 1; }
  // Returns the cost of `count` tokens of its prompt from `begin` on, without their attention.
  size_t prompt_cost(size_t begin, size_t count) const {
    const size_t plain = std::min(count, plain_tokens() - std::min(plain_tokens(), begin));
    return plain + (count - plain) * kRowCost;
  }
  bool finished() const { return samples_finished == what.num_samples; }
  void fail(Error error) {
    if (!failure) failure = std::move(error);
  }
};

Running::Running(Request& owner) : request(&owner), stop_text(owner.what.params.stop_strings) {}

size_t Running::length() const {
  if (!replay.empty()) return replay_fed;
  return request->what.prompt.size() + request->result.sequences[static_cast<size_t>(sample)].tokens.size() - 1;
}

// One feed of a step: tokens of a running sequence, or a piece of a prompt.
struct Slot {
  Running* running = nullptr;
  Request* prompt = nullptr;
  size_t tokens = 1;

  Request& request() const { return running != nullptr ? *running->request : *prompt; }
};

// The requests of one tenant, and its part of the next step.
struct Tenant {
  std::deque<std::unique_ptr<Request>> waiting;  // not active yet, oldest first
  size_t waiting_cost = 0;                       // of their prompts
  int active = 0;                                // number of requests

  std::vector<Slot> items;  // what it could feed, oldest first
  size_t next = 0;          // in `items`
  size_t decodes = 0;       // cost of the items that take one token; in the plan, what is left for them
  size_t wanted = 0;        // cost of its other items and of what waits
  size_t tokens_left = 0;   // of its part, for `wanted`
  size_t debt = 0;          // cost of what it was fed beyond its parts of earlier steps
  bool has_turns = false;   // it is among those that take turns
  bool stalled = false;     // one of its sequences waits for blocks, so no younger one of it starts or resumes
};

}  // namespace tuft::engine
