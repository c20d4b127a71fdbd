#include "engine/trainer.h"

#include <span>
#include <utility>

#include "engine/batch/checked_datum.h"
#include "engine/loss/loss.h"

namespace tuft::engine {
namespace {

struct DatumRange {
  size_t begin = 0;
  size_t end = 0;
};

// Neighbours share a pass while they fit; nothing is reordered, so that sums do not depend on lengths.
std::vector<DatumRange> split_into_passes(const std::vector<CheckedDatum>& data, int batch_tokens) {
  std::vector<DatumRange> out;
  size_t filled = 0;
  for (size_t i = 0; i < data.size(); ++i) {
    const size_t tokens = data[i].tokens.size();
    if (out.empty() || filled + tokens > static_cast<size_t>(batch_tokens)) {
      out.push_back({i, i});
      filled = 0;
    }
    out.back().end = i + 1;
    filled += tokens;
  }
  return out;
}

void append(const CheckedDatum& datum, const AdapterId& adapter, Pack& pack) {
  const int begin = static_cast<int>(pack.tokens.size());
  const int per_row = datum.targets_per_row();
  pack.tokens.insert(pack.tokens.end(), datum.tokens.begin(), datum.tokens.end());
  pack.segments.push_back({adapter, begin, static_cast<int>(pack.tokens.size())});
  for (size_t i = 0; i < datum.targets.size(); ++i) {
    pack.targets.push_back({begin + static_cast<int>(i) / per_row, datum.targets[i]});
  }
}

class PackedTrainJob final : public TrainJob {
 public:
  PackedTrainJob(Engine& engine, AdapterId adapter, std::unique_ptr<Loss> loss, std::vector<CheckedDatum> data,
                 int batch_tokens, bool backward)
      : engine_(engine),
        adapter_(std::move(adapter)),
        loss_(std::move(loss)),
        data_(std::move(data)),
        passes_(split_into_passes(data_, batch_tokens)),
        backward_(backward) {
    output_.logprobs.reserve(data_.size());
  }

  // Given up half-way: no part of its gradient may go into the next optim_step.
  ~PackedTrainJob() override {
    if (gradient_touched_ && !done()) (void)engine_.clear_gradients(adapter_);
  }

  bool done() const override { return failed_ || next_ == passes_.size(); }

  Status advance() override {
    TUFT_CHECK(!done(), "TrainJob::advance() after its end");
    Status status = run_pass(passes_[next_]);
    if (status.ok()) {
      ++next_;
      return {};
    }
    failed_ = true;
    return take_back(std::move(status).error());
  }

  TrainOutput take_output() override {
    TUFT_CHECK(done() && !failed_, "TrainJob::take_output() of a job that is not done");
    output_.metrics["loss:sum"] = loss_sum_;
    output_.passes = static_cast<int>(passes_.size());
    return std::move(output_);
  }

 private:
  Status run_pass(const DatumRange& range) {
    Pack pack;
    for (size_t i = range.begin; i < range.end; ++i) append(data_[i], adapter_, pack);
    std::vector<float> logprobs(pack.targets.size());
    TUFT_TRY(engine_.forward(pack, backward_, logprobs));

    std::vector<float> dloss(logprobs.size());
    size_t at = 0;
    for (size_t i = range.begin; i < range.end; ++i) {
      const size_t count = data_[i].targets.size();
      apply_loss(data_[i], std::span(logprobs).subspan(at, count), std::span(dloss).subspan(at, count));
      at += count;
    }
    output_.tokens += static_cast<int64_t>(pack.tokens.size());
    if (!backward_) return {};
    gradient_touched_ = true;
    return engine_.backward(dloss);
  }

  void apply_loss(const CheckedDatum& datum, std::span<const float> logprobs, std::span<float> dloss) {
    const std::span<const LossInput> inputs = loss_->inputs();
    std::vector<double> values(inputs.size());
    for (size_t i = 0; i < logprobs.size(); ++i) {
      for (size_t k = 0; k < inputs.size(); ++k) {
        values[k] = datum.inputs[k].empty() ? inputs[k].fallback.value_or(0.0) : double{datum.inputs[k][i]};
      }
      const TokenLoss token = loss_->token(logprobs[i], values);
      loss_sum_ += token.loss;
      output_.weight_sum += token.weight;
      dloss[i] = static_cast<float>(token.dloss_dlogprob);
    }
    output_.logprobs.push_back({datum.target_shape, std::vector<float>(logprobs.begin(), logprobs.end())});
  }

  // The engine cannot subtract a pass, so what earlier requests added since the last optim_step goes with it.
  Error take_back(Error error) {
    if (!gradient_touched_) return error;
    if (const Status cleared = engine_.clear_gradients(adapter_); !cleared.ok()) {
      error.message += "; clearing the gradient failed as well: " + cleared.error().message;
      return error;
    }
    error.message +=
        "; the gradient of this model has been cleared - send every forward_backward since the last optim_step again";
    return error;
  }

  Engine& engine_;
  const AdapterId adapter_;
  const std::unique_ptr<Loss> loss_;
  const std::vector<CheckedDatum> data_;
  const std::vector<DatumRange> passes_;
  const bool backward_;
  size_t next_ = 0;
  bool failed_ = false;
  bool gradient_touched_ = false;
  double loss_sum_ = 0.0;
  TrainOutput output_;
};

}  // namespace

Result<std::unique_ptr<TrainJob>> make_train_job(Engine& engine, TrainRequest request, const TrainerOptions& options) {
  if (!engine.has_adapter(request.adapter)) {
    return not_found("the model of this request is not loaded", "adapter_not_loaded");
  }
  TUFT_ASSIGN(std::unique_ptr<Loss> loss, make_loss(request.loss_fn, request.loss_config));
  if (request.data.empty()) return invalid_argument("data is empty; send at least one datum", "bad_datum");
  const DatumLimits limits{engine.model().vocab_size, options.tokens_max};
  std::vector<CheckedDatum> data;
  data.reserve(request.data.size());
  for (Datum& datum : request.data) {
    TUFT_ASSIGN(CheckedDatum checked, check_datum(std::move(datum), data.size(), *loss, limits));
    data.push_back(std::move(checked));
  }
  TUFT_CHECK(options.batch_tokens > 0, "TrainerOptions::batch_tokens must be positive");
  return std::unique_ptr<TrainJob>(std::make_unique<PackedTrainJob>(
      engine, std::move(request.adapter), std::move(loss), std::move(data), options.batch_tokens, request.backward));
}

}  // namespace tuft::engine
