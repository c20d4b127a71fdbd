#include "control/tests/fake_actor.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>

namespace tuft::control {
namespace {

Error died() {
  return unavailable("the worker was ended by signal 9", "worker_died");
}

}  // namespace

template <typename Response>
uint64_t FakeActor::call(const std::string& name, const std::string& detail, actor::Callback<Response> done,
                         std::function<Result<Response>()> work) {
  std::optional<Error> failure;
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = ++last_call_;
    calls_.push_back(detail.empty() ? name : name + " " + detail);
    if (!ready_) {
      failure = unavailable("the worker is starting", "worker_starting");
    } else if (const auto found = failures_.find(name); found != failures_.end()) {
      failure = found->second;
      failures_.erase(found);
    } else if (hold_) {
      held_.push_back({[this, done, work] {
                         Result<Response> result = internal_error("unset");
                         {
                           std::lock_guard inner(mutex_);
                           result = work();
                         }
                         done(std::move(result));
                       },
                       [done](Error error) { done(std::move(error)); }, number});
      return number;
    }
  }
  if (failure) {
    done(*failure);
    return number;
  }
  Result<Response> result = internal_error("unset");
  {
    std::lock_guard lock(mutex_);
    result = work();
  }
  done(std::move(result));
  return number;
}

void FakeActor::cancel(uint64_t number) {
  Held cancelled;
  {
    std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.number == number; });
    if (found == held_.end()) return;
    cancelled = std::move(*found);
    held_.erase(found);
  }
  cancelled.fail(Error{ErrorCode::kCancelled, "the call was cancelled", "cancelled"});
}

bool FakeActor::answer_next() {
  Held next;
  {
    std::lock_guard lock(mutex_);
    if (held_.empty()) return false;
    next = std::move(held_.front());
    held_.pop_front();
  }
  next.answer();
  return true;
}

void FakeActor::answer_all() {
  while (answer_next()) {
  }
}

size_t FakeActor::held() const {
  std::lock_guard lock(mutex_);
  return held_.size();
}

void FakeActor::start() {
  ++generation_;
  ready_ = true;
  if (on_ready_) on_ready_(generation_);
}

void FakeActor::die() {
  ready_ = false;
  std::deque<Held> held;
  {
    std::lock_guard lock(mutex_);
    held.swap(held_);
    adapters_.clear();
    samplers_.clear();
  }
  for (const Held& call : held) call.fail(died());
}

void FakeActor::fail_next(const std::string& call, Error error) {
  std::lock_guard lock(mutex_);
  failures_[call] = std::move(error);
}

std::vector<std::string> FakeActor::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<std::string> FakeActor::calls_of(const std::string& name) const {
  std::vector<std::string> found;
  for (const std::string& call : calls()) {
    if (call == name || call.starts_with(name + " ")) found.push_back(call);
  }
  return found;
}

void FakeActor::clear_calls() {
  std::lock_guard lock(mutex_);
  calls_.clear();
}

int FakeActor::weights_of(const std::string& adapter) const {
  std::lock_guard lock(mutex_);
  const auto found = adapters_.find(adapter);
  return found == adapters_.end() ? -1 : found->second.weights;
}

size_t FakeActor::adapters() const {
  std::lock_guard lock(mutex_);
  return adapters_.size();
}

size_t FakeActor::samplers() const {
  std::lock_guard lock(mutex_);
  return samplers_.size();
}

worker::v1::CreateAdapterRequest FakeActor::last_create() const {
  std::lock_guard lock(mutex_);
  return last_create_;
}

worker::v1::SampleRequest FakeActor::last_sample() const {
  std::lock_guard lock(mutex_);
  return last_sample_;
}

void FakeActor::describe(const actor::CallOptions&, actor::Callback<worker::v1::DescribeResponse> done) {
  worker::v1::DescribeResponse response;
  response.set_architecture("FakeForCausalLM");
  done(std::move(response));
}

void FakeActor::create_adapter(worker::v1::CreateAdapterRequest request, const actor::CallOptions&,
                               actor::Callback<worker::v1::CreateAdapterResponse> done) {
  using Response = worker::v1::CreateAdapterResponse;
  call<Response>("create_adapter", request.adapter_id(), std::move(done), [this, request]() -> Result<Response> {
    adapters_[request.adapter_id()] = {};
    last_create_ = request;
    Response response;
    if (request.spec().train_attn()) response.add_target_modules("q_proj");
    if (request.spec().train_mlp()) response.add_target_modules("up_proj");
    if (request.spec().train_unembed()) response.add_target_modules("lm_head");
    return response;
  });
}

void FakeActor::remove_adapter(worker::v1::RemoveAdapterRequest request, const actor::CallOptions&,
                               actor::Callback<worker::v1::RemoveAdapterResponse> done) {
  using Response = worker::v1::RemoveAdapterResponse;
  call<Response>("remove_adapter", request.adapter_id(), std::move(done), [this, request]() -> Result<Response> {
    adapters_.erase(request.adapter_id());
    return Response();
  });
}

void FakeActor::forward_backward(worker::v1::ForwardBackwardRequest request, const actor::CallOptions&,
                                 actor::Callback<worker::v1::ForwardBackwardResponse> done) {
  using Response = worker::v1::ForwardBackwardResponse;
  const std::string detail = request.adapter_id() + " " + request.request().loss_fn();
  call<Response>("forward_backward", detail, std::move(done), [this, request]() -> Result<Response> {
    if (!adapters_.contains(request.adapter_id())) return not_found("no such adapter", "adapter_not_loaded");
    Response response;
    response.mutable_output()->set_loss_fn_output_type(request.request().loss_fn());
    response.set_tokens(3);
    response.set_queue_seconds(queue_seconds_);
    response.set_weight_sum(weight_sum_);
    (*response.mutable_output()->mutable_metrics())["loss:sum"] = loss_sum_;
    return response;
  });
}

void FakeActor::optim_step(worker::v1::OptimStepRequest request, const actor::CallOptions&,
                           actor::Callback<worker::v1::OptimStepResponse> done) {
  using Response = worker::v1::OptimStepResponse;
  call<Response>("optim_step", request.adapter_id(), std::move(done), [this, request]() -> Result<Response> {
    const auto found = adapters_.find(request.adapter_id());
    if (found == adapters_.end()) return not_found("no such adapter", "adapter_not_loaded");
    ++found->second.weights;
    Response response;
    (*response.mutable_metrics())["grad_norm"] = 0.5;
    response.set_clipped(request.params().grad_clip_norm() > 0 && request.params().grad_clip_norm() < 0.5);
    response.set_nonfinite_update(breaks_weights_);
    (*response.mutable_metrics())["bad"] = std::numeric_limits<double>::quiet_NaN();
    return response;
  });
}

void FakeActor::save_state(worker::v1::SaveStateRequest request, const actor::CallOptions&,
                           actor::Callback<worker::v1::SaveStateResponse> done) {
  using Response = worker::v1::SaveStateResponse;
  call<Response>("save_state", request.adapter_id(), std::move(done), [this, request]() -> Result<Response> {
    const auto found = adapters_.find(request.adapter_id());
    if (found == adapters_.end()) return not_found("no such adapter", "adapter_not_loaded");
    if (!std::filesystem::create_directory(request.directory())) {
      return internal_error("cannot create " + request.directory());
    }
    std::ofstream(std::filesystem::path(request.directory()) / "weights") << found->second.weights;
    Response response;
    response.set_size_bytes(100);
    return response;
  });
}

void FakeActor::load_state(worker::v1::LoadStateRequest request, const actor::CallOptions&,
                           actor::Callback<worker::v1::LoadStateResponse> done) {
  using Response = worker::v1::LoadStateResponse;
  const std::string detail = request.adapter_id() + (request.with_optimizer() ? " +optimizer" : "");
  call<Response>("load_state", detail, std::move(done), [this, request]() -> Result<Response> {
    std::ifstream file(std::filesystem::path(request.directory()) / "weights");
    int weights = 0;
    if (!(file >> weights)) return data_loss("cannot read " + request.directory() + "/weights");
    adapters_[request.adapter_id()].weights = weights;
    return Response();
  });
}

void FakeActor::add_sampler(worker::v1::AddSamplerRequest request, const actor::CallOptions&,
                            actor::Callback<worker::v1::AddSamplerResponse> done) {
  using Response = worker::v1::AddSamplerResponse;
  call<Response>("add_sampler", request.sampler_id(), std::move(done), [this, request]() -> Result<Response> {
    std::ifstream file(std::filesystem::path(request.directory()) / "weights");
    int weights = 0;
    if (!(file >> weights)) return data_loss("cannot read " + request.directory() + "/weights");
    samplers_[request.sampler_id()] = weights;
    return Response();
  });
}

void FakeActor::remove_sampler(worker::v1::RemoveSamplerRequest request, const actor::CallOptions&,
                               actor::Callback<worker::v1::RemoveSamplerResponse> done) {
  using Response = worker::v1::RemoveSamplerResponse;
  call<Response>("remove_sampler", request.sampler_id(), std::move(done), [this, request]() -> Result<Response> {
    samplers_.erase(request.sampler_id());
    return Response();
  });
}

void FakeActor::publish_adapter(worker::v1::PublishAdapterRequest request, const actor::CallOptions&,
                                actor::Callback<worker::v1::PublishAdapterResponse> done) {
  using Response = worker::v1::PublishAdapterResponse;
  call<Response>("publish_adapter", request.adapter_id(), std::move(done), [this, request]() -> Result<Response> {
    const auto found = adapters_.find(request.adapter_id());
    if (found == adapters_.end()) return not_found("no such adapter", "adapter_not_loaded");
    samplers_[request.sampler_id()] = found->second.weights;
    Response response;
    response.set_size_bytes(100);
    return response;
  });
}

void FakeActor::save_sampler(worker::v1::SaveSamplerRequest request, const actor::CallOptions&,
                             actor::Callback<worker::v1::SaveSamplerResponse> done) {
  using Response = worker::v1::SaveSamplerResponse;
  call<Response>("save_sampler", request.sampler_id(), std::move(done), [this, request]() -> Result<Response> {
    const auto found = samplers_.find(request.sampler_id());
    if (found == samplers_.end()) return not_found("no such sampler", "sampler_not_loaded");
    if (!std::filesystem::create_directory(request.directory())) {
      return internal_error("cannot create " + request.directory());
    }
    std::ofstream(std::filesystem::path(request.directory()) / "weights") << found->second;
    Response response;
    response.set_size_bytes(100);
    return response;
  });
}

Result<worker::v1::SampleResponse> FakeActor::sample_locked(const worker::v1::SampleRequest& request) {
  int32_t number = -1;  // the base model
  if (!request.sampler_id().empty()) {
    const auto found = samplers_.find(request.sampler_id());
    if (found == samplers_.end()) return not_found("no such sampler", "sampler_not_loaded");
    number = found->second;
  }
  last_sample_ = request;
  worker::v1::SampleResponse response;
  for (int i = 0; i < request.num_samples(); ++i) {
    response.mutable_response()->add_sequences()->set_tokens(&number, sizeof number);
  }
  response.set_output_tokens(request.num_samples());
  response.set_queue_seconds(queue_seconds_);
  return response;
}

actor::Cancel FakeActor::sample(worker::v1::SampleRequest request, const actor::CallOptions&,
                                actor::Callback<worker::v1::SampleResponse> done) {
  const uint64_t number = call<worker::v1::SampleResponse>("sample", request.sampler_id(), std::move(done),
                                                           [this, request] { return sample_locked(request); });
  return [this, number] { cancel(number); };
}

actor::Cancel FakeActor::stream_sample(worker::v1::SampleRequest request, const actor::CallOptions&, OnTokens on_tokens,
                                       actor::Callback<worker::v1::SampleResponse> done) {
  using Response = worker::v1::SampleResponse;
  auto stream = [on_tokens = std::move(on_tokens), done = std::move(done)](Result<Response> result) {
    if (result.ok()) {
      worker::v1::SampleDelta delta;
      int index = 0;
      for (const auto& sequence : result->response().sequences()) {
        worker::v1::SampleTokens& tokens = *delta.add_new_tokens();
        tokens.set_sample(index++);
        tokens.set_tokens(sequence.tokens());
        tokens.set_logprobs(std::string(sequence.tokens().size(), '\0'));
      }
      on_tokens(delta);
    }
    done(std::move(result));
  };
  const std::string detail = request.sampler_id();
  const uint64_t number = call<Response>("stream_sample", detail, std::move(stream),
                                         [this, request = std::move(request)] { return sample_locked(request); });
  return [this, number] { cancel(number); };
}

void FakeActor::collect_metrics(actor::Callback<worker::v1::CollectMetricsResponse> done) {
  using Response = worker::v1::CollectMetricsResponse;
  call<Response>("collect_metrics", "", std::move(done), [this]() -> Result<Response> {
    Response response;
    response.set_snapshot(metrics_snapshot_);
    return response;
  });
}

void FakeActor::collect_traces(worker::v1::CollectTracesRequest,
                               actor::Callback<worker::v1::CollectTracesResponse> done) {
  using Response = worker::v1::CollectTracesResponse;
  call<Response>("collect_traces", "", std::move(done), []() -> Result<Response> { return Response(); });
}

void FakeActor::keep_traces(worker::v1::KeepTracesRequest request) {
  std::lock_guard lock(mutex_);
  kept_traces_.insert(kept_traces_.end(), request.traces().begin(), request.traces().end());
}

void FakeActor::set_metrics_snapshot(std::string snapshot) {
  std::lock_guard lock(mutex_);
  metrics_snapshot_ = std::move(snapshot);
}

std::vector<worker::v1::TraceId> FakeActor::kept_traces() const {
  std::lock_guard lock(mutex_);
  return kept_traces_;
}

int sampled_number(const std::string& bytes) {
  tinker_public::SampleResponse response;
  int32_t number = -2;
  if (!response.ParseFromString(bytes) || response.sequences_size() == 0) return number;
  std::memcpy(&number, response.sequences(0).tokens().data(), sizeof number);
  return number;
}

}  // namespace tuft::control
