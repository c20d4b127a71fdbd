// Draws: what the sampler computes from rows of logits, on the threads of the engine. Each row is computed by itself
// and draws from a number of its own, so that its bits depend neither on the other rows nor on the number of threads.
// Internal to the sampler; confined to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/sample/distribution.h"
#include "engine/sample/sampler.h"

namespace tuft::engine {

// A token with its log-probability and, if requested, the most likely tokens in its place.
struct Drawn {
  int32_t token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

// A row, and what is asked of it.
struct LogitsTask {
  std::span<const float> logits;
  const SamplingParams* params = nullptr;  // of the draw; null: `drawn.token` is given
  double uniform = 0;                      // of the draw
  int top = 0;                             // number of most likely tokens
  std::span<const int32_t> targets;        // tokens to score, unless negative
  float draws_temperature = 1;             // of `draws`, which begin with a seed of their own
  uint64_t draws_seed = 0;
  size_t draws_position = 0;
  // The answer.
  Drawn drawn;
  std::span<float> target_logprobs;  // one for each of `targets`; unchanged where that is negative
  std::span<TokenLogprob> draws;     // as many independent draws
  bool finite = false;               // false: the row has a NaN or no finite value, and there is no answer
};

class Draws {
 public:
  // The engine must outlive it.
  explicit Draws(DecodeEngine& engine);

  void run(std::span<LogitsTask> tasks);

 private:
  static void compute(LogitsTask& task, Distribution& distribution);

  DecodeEngine& engine_;
  std::vector<Distribution> distributions_;  // one for each thread
};

}  // namespace tuft::engine
