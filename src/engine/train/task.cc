#include "engine/train/task.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "engine/loss/custom_loss.h"
#include "engine/model_cost.h"

namespace tuft::engine {
namespace {

constexpr const char* kLossSum = "loss:sum";

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

Status check_custom_config(const TrainRequest& request) {
  if (request.loss_config.empty() && request.loss_texts.empty()) return {};
  return invalid_argument("loss_fn_config: custom has only the keys loss_id and temperature", "unknown_loss_config");
}

}  // namespace

void tell_lost_gradient(Error& error) try {
  error.message += "; the gradient of this model is lost - send every forward_backward since the last optim_step again";
} catch (const std::bad_alloc&) {
  error.message = "gradient lost";  // short enough to need no memory
}

Result<std::unique_ptr<TrainTask>> TrainTask::make(const ModelSpec& model, const AdapterStore& adapters,
                                                   TrainRequest request, const TrainerOptions& options) {
  if (!adapters.contains(request.adapter)) {
    return not_found("the model of this request is not loaded", "adapter_not_loaded");
  }
  std::unique_ptr<TrainTask> task(new TrainTask());
  TUFT_ASSIGN(task->temperature_, take_temperature(request.loss_config));
  if (request.custom_loss != nullptr) {
    TUFT_TRY(check_custom_config(request));
    task->custom_loss_ = std::move(request.custom_loss);
    task->loss_ = make_custom_targets(*task->custom_loss_);
  } else {
    TUFT_ASSIGN(task->loss_, make_loss(request.loss_fn, request.loss_config, request.loss_texts));
  }
  if (request.data.empty()) return invalid_argument("data is empty; send at least one datum", "bad_datum");
  TUFT_TRY(task->take_data(std::move(request.data), model, options));
  task->adapter_ = std::move(request.adapter);
  task->backward_ = request.backward;
  task->output_.logprobs.reserve(task->data_.size());
  task->output_.metrics[kLossSum] = 0;  // so that result() needs no memory
  if (task->custom_loss_ != nullptr) {
    task->metric_sums_.resize(task->custom_loss_->metrics().size());
    for (const std::string& name : task->custom_loss_->metrics()) task->output_.metrics[name] = 0;
  }
  return task;
}

Status TrainTask::take_data(std::vector<Datum> data, const ModelSpec& model, const TrainerOptions& options) {
  const DatumLimits limits{model.vocab_size, options.tokens_max};
  data_.reserve(data.size());
  if (custom_loss_ != nullptr) loss_cost_.reserve(data.size());
  positions_per_token_ = ModelCost(model).positions_per_token();
  for (Datum& datum : data) {
    std::vector<LossTensor> custom_inputs = std::move(datum.custom_inputs);
    if (custom_loss_ != nullptr) loss_cost_.push_back(tokens_worth(model, options.peak_flops, datum.custom_elements));
    TUFT_ASSIGN(CheckedDatum checked, check_datum(std::move(datum), data_.size(), *loss_, limits));
    checked.custom_inputs = std::move(custom_inputs);
    data_.push_back(std::move(checked));
    tokens_ += tokens_of(data_.size() - 1);
    room_ += room_of(data_.size() - 1);
    cost_ += cost_of(data_.size() - 1);
  }
  return {};
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
  const DatumLoss loss = loss_->datum({logprobs, cells}, dloss);
  loss_sum_ += loss.loss;
  output_.weight_sum += loss.weight;
  has_mean_ = has_mean_ && loss.has_mean;
  output_.logprobs.push_back({datum.target_shape, std::vector<float>(logprobs.begin(), logprobs.end())});
}

Result<loss_graph::Outcome> TrainTask::evaluate(size_t datum, std::span<const float> logprobs) const {
  return evaluate_custom_loss(*custom_loss_, data_[datum], datum, logprobs);
}

void TrainTask::take(std::span<const float> logprobs, Result<loss_graph::Outcome> outcome, std::span<float> dloss) {
  std::fill(dloss.begin(), dloss.end(), 0.0F);
  if (failed()) return;
  if (!outcome.ok()) {
    failure_ = std::move(outcome).error();
    return;
  }
  std::transform(outcome->gradient.begin(), outcome->gradient.end(), dloss.begin(),
                 [](double value) { return static_cast<float>(value); });
  loss_sum_ += outcome->loss;
  for (size_t i = 0; i < metric_sums_.size(); ++i) metric_sums_[i] += outcome->metrics[i];
  has_mean_ = false;
  output_.logprobs.push_back({data_[next()].target_shape, std::vector<float>(logprobs.begin(), logprobs.end())});
}

void TrainTask::rewind() {
  failure_ = {};
  std::fill(metric_sums_.begin(), metric_sums_.end(), 0.0);
  loss_sum_ = 0.0;
  output_.logprobs.clear();
  output_.weight_sum = 0;
  has_mean_ = true;
}

void TrainTask::note_lost_gradient() {
  Error error = std::move(failure_).error();
  tell_lost_gradient(error);
  failure_ = std::move(error);
}

void TrainTask::write_metrics() {
  output_.metrics[kLossSum] = loss_sum_;
  for (size_t i = 0; i < metric_sums_.size(); ++i) {
    const std::string& name = custom_loss_->metrics()[i];
    const bool mean = loss_graph::is_mean_metric(name);
    output_.metrics.find(name)->second = mean ? metric_sums_[i] / static_cast<double>(size()) : metric_sums_[i];
  }
}

Result<TrainOutput> TrainTask::result() {
  TUFT_CHECK(done(), "result() of a request that is not done");
  if (failed()) return std::move(failure_).error();
  write_metrics();
  output_.tokens = tokens_;
  if (!has_mean_) output_.weight_sum = 0;
  return std::move(output_);
}

}  // namespace tuft::engine
