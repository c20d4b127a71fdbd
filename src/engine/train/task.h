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

// Adds to an error that what the adapter's gradient held before the request is lost. Does not throw.
void tell_lost_gradient(Error& error);

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
  // What a pass is filled by: tokens, and those in whose time a custom loss is evaluated.
  int64_t room_of(size_t datum) const { return tokens_of(datum) + (loss_cost_.empty() ? 0 : loss_cost_[datum]); }
  int64_t room() const { return room_; }
  // What its tenant pays: the same, and one more for each ModelCost::positions_per_token() positions that tokens attend
  // to.
  int64_t cost_of(size_t datum) const {
    const int64_t tokens = tokens_of(datum);
    return room_of(datum) + tokens * (tokens + 1) / 2 / positions_per_token_;
  }
  int64_t cost() const { return cost_; }
  // Returns the index of the next datum; those before it have been in a pass.
  size_t next() const { return output_.logprobs.size(); }
  bool done() const { return failed() || next() == size(); }
  // A custom loss could not be computed. No gradient of the request counts.
  bool failed() const { return !failure_.ok(); }

  void append(size_t datum, Pack& pack) const;
  size_t targets_of(size_t datum) const { return data_[datum].target_count(); }
  // Takes the log-probabilities of datum next() and writes the derivative of the loss by each of them.
  void take(std::span<const float> logprobs, std::span<float> dloss);
  bool has_custom_loss() const { return custom_loss_ != nullptr; }
  // Computes the custom loss of a datum. Thread-safe; does not throw.
  Result<loss_graph::Outcome> evaluate(size_t datum, std::span<const float> logprobs) const;
  // Does the same as take(), with the result of evaluate(). An error fails the request.
  void take(std::span<const float> logprobs, Result<loss_graph::Outcome> outcome, std::span<float> dloss);
  void count_pass() { ++output_.passes; }
  // Discards all results.
  void rewind();
  // Says in the failure that the gradient of earlier requests is lost, too. Requires failed(). Does not throw.
  void note_lost_gradient();
  // Requires done(). To be called once. Does not throw.
  Result<TrainOutput> result();

 private:
  TrainTask() = default;
  Status take_data(std::vector<Datum> data, const ModelSpec& model, const TrainerOptions& options);
  void write_metrics();

  AdapterId adapter_;
  bool backward_ = true;
  float temperature_ = 1.0F;
  std::unique_ptr<Loss> loss_;
  std::shared_ptr<const loss_graph::Program> custom_loss_;  // null: `loss_` computes the loss
  std::vector<CheckedDatum> data_;
  std::vector<int64_t> loss_cost_;  // of each datum, in tokens; empty: 0
  int64_t positions_per_token_ = 1;
  int64_t tokens_ = 0;
  int64_t room_ = 0;
  int64_t cost_ = 0;
  Status failure_;
  double loss_sum_ = 0.0;
  std::vector<double> metric_sums_;  // of the custom loss
  bool has_mean_ = true;             // no weight was below 0
  TrainOutput output_;
};

}  // namespace tuft::engine
