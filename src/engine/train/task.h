// TrainTask: one forward or forward_backward request with its checked datums and the results of its passes so far.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/adapter_store.h"
#include "engine/batch/checked_datum.h"
#include "engine/loss/loss.h"
#include "engine/trainer.h"
#include "engine/training_engine.h"

namespace tuft::engine {

class TrainTask {
 public:
  // Returns kInvalidArgument with the datum and the key, or kNotFound if the adapter is not loaded.
  static Result<std::unique_ptr<TrainTask>> make(const ModelSpec& model, const AdapterStore& adapters,
                                                 TrainRequest request, const TrainerOptions& options);

  const AdapterId& adapter() const { return adapter_; }
  bool backward() const { return backward_; }
  size_t size() const { return data_.size(); }
  int tokens_of(size_t datum) const { return static_cast<int>(data_[datum].tokens.size()); }
  int64_t tokens() const { return tokens_; }
  // Returns the index of the next datum; those before it have been in a pass.
  size_t next() const { return output_.logprobs.size(); }
  bool done() const { return next() == size(); }

  void append(size_t datum, Pack& pack) const;
  size_t targets_of(size_t datum) const { return data_[datum].target_count(); }
  // Takes the log-probabilities of datum next() and writes the derivative of the loss by each of them.
  void take(std::span<const float> logprobs, std::span<float> dloss);
  void count_pass() { ++output_.passes; }
  // Discards all results.
  void rewind();
  // Requires done(). To be called once.
  TrainOutput output();

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
