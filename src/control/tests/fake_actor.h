// A model actor without a process or a model. An adapter's weights are one number: optim_step adds one. A checkpoint is
// a directory with that number in a file, and what a sampler samples is the number of its checkpoint.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actor/model_actor.h"

namespace tuft::control {

class FakeActor final : public actor::ModelActor {
 public:
  explicit FakeActor(std::string base_model) : base_model_(std::move(base_model)) {}

  // Answers come inside the call (the default), or one by one when the test says answer_next().
  void hold_answers(bool hold) { hold_ = hold; }
  bool answer_next();
  void answer_all();
  size_t held() const;

  void start();  // ready, generation + 1, tells on_ready
  void die();    // not ready; what is held fails, memory is gone
  void set_ready(bool ready) { ready_ = ready; }

  // What each answer says of its wait in the worker, and a pass of its loss.
  void set_queue_seconds(double seconds) { queue_seconds_ = seconds; }
  void set_loss(double sum, double weight_sum) {
    loss_sum_ = sum;
    weight_sum_ = weight_sum;
  }
  // Steps of the optimizer make weights that are not finite.
  void set_breaks_weights(bool breaks) { breaks_weights_ = breaks; }
  // The next call whose name is `call` fails.
  void fail_next(const std::string& call, Error error);

  // "optim_step <adapter>" and so on, in order of arrival. Of forward_backward also the loss_fn.
  std::vector<std::string> calls() const;
  std::vector<std::string> calls_of(const std::string& name) const;
  void clear_calls();
  int weights_of(const std::string& adapter) const;
  size_t adapters() const;
  size_t samplers() const;
  worker::v1::CreateAdapterRequest last_create() const;
  worker::v1::SampleRequest last_sample() const;

  const std::string& base_model() const override { return base_model_; }
  bool ready() const override { return ready_; }
  uint64_t generation() const override { return generation_; }
  void on_ready(std::function<void(uint64_t)> callback) override { on_ready_ = std::move(callback); }

  void describe(const actor::CallOptions&, actor::Callback<worker::v1::DescribeResponse> done) override;
  void create_adapter(worker::v1::CreateAdapterRequest, const actor::CallOptions&,
                      actor::Callback<worker::v1::CreateAdapterResponse>) override;
  void remove_adapter(worker::v1::RemoveAdapterRequest, const actor::CallOptions&,
                      actor::Callback<worker::v1::RemoveAdapterResponse>) override;
  void forward_backward(worker::v1::ForwardBackwardRequest, const actor::CallOptions&,
                        actor::Callback<worker::v1::ForwardBackwardResponse>) override;
  void optim_step(worker::v1::OptimStepRequest, const actor::CallOptions&,
                  actor::Callback<worker::v1::OptimStepResponse>) override;
  void save_state(worker::v1::SaveStateRequest, const actor::CallOptions&,
                  actor::Callback<worker::v1::SaveStateResponse>) override;
  void load_state(worker::v1::LoadStateRequest, const actor::CallOptions&,
                  actor::Callback<worker::v1::LoadStateResponse>) override;
  void add_sampler(worker::v1::AddSamplerRequest, const actor::CallOptions&,
                   actor::Callback<worker::v1::AddSamplerResponse>) override;
  void remove_sampler(worker::v1::RemoveSamplerRequest, const actor::CallOptions&,
                      actor::Callback<worker::v1::RemoveSamplerResponse>) override;
  void publish_adapter(worker::v1::PublishAdapterRequest, const actor::CallOptions&,
                       actor::Callback<worker::v1::PublishAdapterResponse>) override;
  void save_sampler(worker::v1::SaveSamplerRequest, const actor::CallOptions&,
                    actor::Callback<worker::v1::SaveSamplerResponse>) override;
  actor::Cancel sample(worker::v1::SampleRequest, const actor::CallOptions&,
                       actor::Callback<worker::v1::SampleResponse>) override;
  // All tokens of the answer in one delta before it.
  actor::Cancel stream_sample(worker::v1::SampleRequest, const actor::CallOptions&, OnTokens on_tokens,
                              actor::Callback<worker::v1::SampleResponse>) override;
  void collect_metrics(actor::Callback<worker::v1::CollectMetricsResponse>) override;
  void keep_traces(worker::v1::KeepTracesRequest) override;
  void collect_traces(worker::v1::CollectTracesRequest, actor::Callback<worker::v1::CollectTracesResponse>) override;
  // What collect_metrics() gives, and what keep_traces() was told.
  void set_metrics_snapshot(std::string snapshot);
  std::vector<worker::v1::TraceId> kept_traces() const;

 private:
  struct Held {
    std::function<void()> answer;
    std::function<void(Error)> fail;
    uint64_t number = 0;
  };
  struct Adapter {
    int weights = 0;
  };

  void cancel(uint64_t number);
  Result<worker::v1::SampleResponse> sample_locked(const worker::v1::SampleRequest& request);

  // Gives the number of the call.
  template <typename Response>
  uint64_t call(const std::string& name, const std::string& detail, actor::Callback<Response> done,
                std::function<Result<Response>()> work);

  const std::string base_model_;
  std::atomic<bool> ready_{false};
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> hold_{false};
  std::atomic<double> queue_seconds_{0};
  std::atomic<double> loss_sum_{0};
  std::atomic<double> weight_sum_{0};
  std::atomic<bool> breaks_weights_{false};
  std::function<void(uint64_t)> on_ready_;

  mutable std::mutex mutex_;  // all below
  std::vector<std::string> calls_;
  std::map<std::string, Error> failures_;
  std::deque<Held> held_;
  uint64_t last_call_ = 0;
  std::map<std::string, Adapter> adapters_;
  std::map<std::string, int> samplers_;
  worker::v1::CreateAdapterRequest last_create_;
  worker::v1::SampleRequest last_sample_;
  std::string metrics_snapshot_;
  std::vector<worker::v1::TraceId> kept_traces_;
};

// What a held sample or forward_backward gives, decoded.
int sampled_number(const std::string& sample_response_bytes);

}  // namespace tuft::control
