// One forward or forward_backward request on its way: its checked datums, and what passes have given so far.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/batch/checked_datum.h"
#include "engine/engine.h"
#include "engine/loss/loss.h"
#include "engine/trainer.h"

namespace tuft::engine {

class TrainTask {
 public:
  // kInvalidArgument names datum and key; kNotFound where the adapter is not loaded.
  static Result<std::unique_ptr<TrainTask>> make(const Engine& engine, TrainRequest request,
                                                 const TrainerOptions& options);

  const AdapterId& adapter() const { return adapter_; }
  bool backward() const { return backward_; }
  size_t size() const { return data_.size(); }
  int tokens_of(size_t datum) const { return static_cast<int>(data_[datum].tokens.size()); }
  int64_t tokens() const { return tokens_; }
  // Datums before it have been through a pass.
  size_t next() const { return output_.logprobs.size(); }
  bool done() const { return next() == size(); }

  void append(size_t datum, Pack& pack) const;
  size_t targets_of(size_t datum) const { return data_[datum].targets.size(); }
  // Of datum next(): takes its log-probabilities and writes the derivative of the loss by each.
  void take(std::span<const float> logprobs, std::span<float> dloss);
  void count_pass() { ++output_.passes; }
  // Forgets what was taken.
  void rewind();
  TrainOutput output();  // once, when done

 private:
  TrainTask() = default;

  AdapterId adapter_;
  bool backward_ = true;
  float temperature_ = 1.0F;
  std::unique_ptr<Loss> loss_;
  std::vector<CheckedDatum> data_;
  int64_t tokens_ = 0;
  double loss_sum_ = 0.0;
  bool has_mean_ = true;  // no weight was below 0
  TrainOutput output_;
};

}  // namespace tuft::engine
