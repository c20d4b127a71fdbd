// Turns forward_backward requests into passes of the engine: packs datums under a token budget, applies the loss,
// sends the gradient back, and collects the outputs in the order of the datums.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
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

struct TrainRequest {
  AdapterId adapter;
  std::vector<Datum> data;
  std::string loss_fn;
  std::map<std::string, double> loss_config;
  bool backward = true;
};

struct TrainOutput {
  // logprobs[i] belongs to data[i] and has the shape of its target_tokens.
  std::vector<LossTensor> logprobs;
  std::map<std::string, double> metrics;  // "loss:sum", ... exactly one ':' each
  double weight_sum = 0;                  // of the losses' weights: loss:sum over it is the mean per weighted token
  int64_t tokens = 0;
  int passes = 0;
};

struct TrainerOptions {
  int batch_tokens = 512;  // of one pass; a longer datum makes a pass of its own
  int tokens_max = 0;      // max_model_len: a longer datum is refused
};

// A request on its way. Confined to the engine thread.
//
// Checks everything first (make_train_job): a loss, key, shape, dtype or token that is wrong is kInvalidArgument naming
// datum and key, before anything is computed. Then advance() runs one pass at a time, so that sampling steps and other
// work can go between. A failure on the way takes the request's gradient back: an adapter's gradient holds whole
// requests or nothing of them.
class TrainJob {
 public:
  virtual ~TrainJob() = default;
  virtual bool done() const = 0;
  virtual Status advance() = 0;           // call while !done()
  virtual TrainOutput take_output() = 0;  // once, when done
};

Result<std::unique_ptr<TrainJob>> make_train_job(Engine& engine, TrainRequest request, const TrainerOptions& options);

}  // namespace tuft::engine
