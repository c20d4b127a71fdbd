// Requests of forward and forward_backward, and their results. The training scheduler (engine/train/scheduler.h) runs
// them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/lora.h"
#include "loss_graph/program.h"

namespace tuft::engine {

// A loss input of one datum: row-major, shape [N] or [N, K].
struct LossTensor {
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;  // of all cells, or of those in `places`
  // The cells that have a value, if that is not all of them; the others are 0. Of two values for one cell the later
  // counts. A sparse tensor stays sparse until its datum runs, so that what waits takes no more than what was sent.
  std::optional<std::vector<int64_t>> places = std::nullopt;
};

struct Datum {
  std::vector<int32_t> tokens;  // N >= 1
  std::map<std::string, LossTensor> loss_inputs;
  // The members of a request with a custom loss, set by prepare_custom_loss().
  std::vector<LossTensor> custom_inputs = {};  // those of the loss after logprobs, in its order
  int64_t custom_elements = 0;                 // as many as take the time of its evaluation
};

// The minimum of "temperature" in loss_config. Every loss has this key (default 1): the logits are divided by it.
inline constexpr float kTemperatureMin = 1e-3F;

struct TrainRequest {
  AdapterId adapter;
  std::vector<Datum> data;
  std::string loss_fn;
  std::map<std::string, double> loss_config;
  bool backward = true;
  int rank = 0;                                        // of the adapter; a pass puts adapters of one rank side by side
  std::string tenant = {};                             // tenants take turns; empty: the adapter is a tenant of its own
  std::map<std::string, std::string> loss_texts = {};  // the part of loss_config whose values are texts
  std::shared_ptr<const loss_graph::Program> custom_loss = nullptr;  // computes the loss; loss_fn is kCustomLoss
};

struct TrainOutput {
  // logprobs[i] belongs to data[i] and has the shape of its target_tokens.
  std::vector<LossTensor> logprobs;
  std::map<std::string, double> metrics;  // "loss:sum", ...; exactly one ':' each
  // The sum of the token weights; loss:sum divided by it is the mean loss. 0 if a weight is below 0: a custom loss
  // sends its gradient as weights, and then loss:sum is not a loss.
  double weight_sum = 0;
  int64_t tokens = 0;
  int passes = 0;
};

struct TrainerOptions {
  int batch_tokens = 512;  // per pass; a longer datum makes a pass of its own
  int tokens_max = 0;      // max_model_len: a longer datum is refused
  double peak_flops = 0;   // Engine::assumed_peak_flops(), to compare custom losses with tokens
};

}  // namespace tuft::engine
