#include "engine/train/task.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

namespace tuft::engine {
namespace {

// Removes "temperature", which every loss has, from the config and returns it.
Result<float> take_temperature(LossConfig& config) {
  const auto found = config.find("temperature");
  if (found == config.end()) return 1.0F;
  const auto temperature = static_cast<float>(found->second);
  if (!std::isfinite(temperature) || !(temperature >= kTemperatureMin)) {
    return invalid_argument("loss_fn_config: temperature is " + std::to_string(found->second) +
                                "; it must be finite and at least " + std::to_string(kTemperatureMin),
                            "bad_loss_config");
  }
  config.erase(found);
  return temperature;
}

}  // namespace

Result<std::unique_ptr<TrainTask>> TrainTask::make(const ModelSpec& model, const AdapterStore& adapters,
                                                   TrainRequest request, const TrainerOptions& options) {
  if (!adapters.contains(request.adapter)) {
    return not_found("the model of this request is not loaded", "adapter_not_loaded");
  }
  std::unique_ptr<TrainTask> task(new TrainTask());
  TUFT_ASSIGN(task->temperature_, take_temperature(request.loss_config));
  TUFT_ASSIGN(task->loss_, make_loss(request.loss_fn, request.loss_config));
  if (request.data.empty()) return invalid_argument("data is empty; send at least one datum", "bad_datum");
  const DatumLimits limits{model.vocab_size, options.tokens_max};
  task->data_.reserve(request.data.size());
  for (Datum& datum : request.data) {
    TUFT_ASSIGN(CheckedDatum checked, check_datum(std::move(datum), task->data_.size(), *task->loss_, limits));
    task->tokens_ += static_cast<int64_t>(checked.tokens.size());
    task->data_.push_back(std::move(checked));
  }
  task->adapter_ = std::move(request.adapter);
  task->backward_ = request.backward;
  task->output_.logprobs.reserve(task->data_.size());
  return task;
}

void TrainTask::append(size_t index, Pack& pack) const {
  const CheckedDatum& datum = data_[index];
  const int begin = static_cast<int>(pack.tokens.size());
  const int per_row = datum.targets_per_row();
  pack.tokens.insert(pack.tokens.end(), datum.tokens.begin(), datum.tokens.end());
  pack.segments.push_back({adapter_, begin, static_cast<int>(pack.tokens.size()), temperature_});
  std::vector<int32_t> buffer;
  const std::span<const int32_t> targets = datum.targets.all(datum.target_count(), buffer);
  for (size_t i = 0; i < targets.size(); ++i) {
    pack.targets.push_back({begin + static_cast<int>(i) / per_row, targets[i]});
  }
}

void TrainTask::take(std::span<const float> logprobs, std::span<float> dloss) {
  const CheckedDatum& datum = data_[next()];
  const std::span<const LossInput> inputs = loss_->inputs();
  std::vector<std::vector<float>> buffers(inputs.size());
  std::vector<std::span<const float>> cells(inputs.size());  // empty: the fallback
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (datum.inputs[k]) cells[k] = datum.inputs[k]->all(logprobs.size(), buffers[k]);
  }
  std::vector<double> values(inputs.size());
  for (size_t i = 0; i < logprobs.size(); ++i) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      values[k] = cells[k].empty() ? inputs[k].fallback.value_or(0.0) : double{cells[k][i]};
    }
    const TokenLoss token = loss_->token(logprobs[i], values);
    loss_sum_ += token.loss;
    output_.weight_sum += token.weight;
    has_mean_ = has_mean_ && token.weight >= 0;
    dloss[i] = static_cast<float>(token.dloss_dlogprob);
  }
  output_.logprobs.push_back({datum.target_shape, std::vector<float>(logprobs.begin(), logprobs.end())});
}

void TrainTask::rewind() {
  loss_sum_ = 0.0;
  output_.logprobs.clear();
  output_.weight_sum = 0;
  has_mean_ = true;
}

TrainOutput TrainTask::output() {
  TUFT_CHECK(done(), "output() of a request that is not done");
  output_.metrics["loss:sum"] = loss_sum_;
  output_.tokens = tokens_;
  if (!has_mean_) output_.weight_sum = 0;
  return std::move(output_);
}

}  // namespace tuft::engine
