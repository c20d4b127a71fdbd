// What forward and forward_backward requests are made of. They are run by the training scheduler
// (engine/train/scheduler.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"

namespace tuft::engine {

// A loss input of one datum: dense, row-major, shape [N] or [N, K].
struct LossTensor {
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};

struct Datum {
  std::vector<int32_t> tokens;  // N >= 1
  std::map<std::string, LossTensor> loss_inputs;
};

// loss_config may hold, for every loss, "temperature" (1): the log-probabilities are those of logits divided by it.
inline constexpr float kTemperatureMin = 1e-3F;

struct TrainRequest {
  AdapterId adapter;
  std::vector<Datum> data;
  std::string loss_fn;
  std::map<std::string, double> loss_config;
  bool backward = true;
  int rank = 0;             // of the adapter: those of one rank lie side by side in a pass
  std::string tenant = {};  // who takes turns with others; empty: the adapter by itself
};

struct TrainOutput {
  // logprobs[i] belongs to data[i] and has the shape of its target_tokens.
  std::vector<LossTensor> logprobs;
  std::map<std::string, double> metrics;  // "loss:sum", ... exactly one ':' each
  // Of the losses' weights: loss:sum over it is the mean per weighted token. 0 where a weight is below 0, as a custom
  // loss sends them: what it gives is a gradient, and its sum no loss.
  double weight_sum = 0;
  int64_t tokens = 0;
  int passes = 0;
};

struct TrainerOptions {
  int batch_tokens = 512;  // of one pass; a longer datum makes a pass of its own
  int tokens_max = 0;      // max_model_len: a longer datum is refused
};

}  // namespace tuft::engine
