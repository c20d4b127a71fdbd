// SupervisedActorImpl's calls: one gRPC call each, answered on gRPC's threads.
#include <chrono>

#include "actor/status.h"
#include "actor/supervised_actor.h"
#include "telemetry/metrics.h"

namespace tuft::actor {
namespace {

namespace v1 = worker::v1;

// A broken connection and a dead process are seen by different threads. This is how long the news of the one waits for
// the other.
constexpr Nanos kDeathNewsWait = 2 * kSecond;

constexpr const char* kIdsMetadata = "tuft-ids-bin";

using Ended = std::function<void(const grpc::Status&)>;

Cancel cancel_of(const std::shared_ptr<grpc::ClientContext>& context) {
  return [weak = std::weak_ptr(context)] {
    if (const auto running = weak.lock()) running->TryCancel();
  };
}

template <typename Request, typename Response>
struct CallState {
  std::string_view name;
  Request request;
  Response response;
  Callback<Response> callback;
  std::shared_ptr<grpc::ClientContext> context =
      std::make_shared<grpc::ClientContext>();  // cancels may outlive the call
  std::shared_ptr<Connection> connection;
  Nanos begin = system_clock().monotonic();

  void answer(Result<Response> result) {
    const double seconds = to_seconds(system_clock().monotonic() - begin);
    const std::string_view status = result.ok() ? "ok" : error_code_name(result.error().code);
    telemetry::get_metrics().worker_rpc_duration.record(seconds, {{"method", name}, {"status", status}});
    callback(std::move(result));
  }
};

template <typename Request, typename Response, typename Method>
struct PendingCall : CallState<Request, Response> {
  Method method;

  void start(Ended ended) {
    (this->connection->stub->async()->*method)(
        this->context.get(), &this->request, &this->response,
        [ended = std::move(ended)](const grpc::Status& status) { ended(status); });
  }
};

// Lives until gRPC says that it is over.
struct StreamCall final : CallState<v1::SampleRequest, v1::SampleResponse>, grpc::ClientReadReactor<v1::SampleDelta> {
  ModelActor::OnTokens on_tokens;

  void start(Ended ended) {
    ended_ = std::move(ended);
    connection->stub->async()->StreamSample(context.get(), &request, this);
    StartRead(&delta_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (delta_.has_answer()) {
      has_answer_ = true;
      response = std::move(*delta_.mutable_answer());
    } else {
      on_tokens(delta_);
    }
    StartRead(&delta_);
  }

  void OnDone(const grpc::Status& status) override {
    const bool cut = status.ok() && !has_answer_;
    // Ends this object.
    const Ended ended = std::move(ended_);
    ended(cut ? grpc::Status(grpc::StatusCode::INTERNAL, "the worker ended a sample without an answer") : status);
  }

 private:
  v1::SampleDelta delta_;
  bool has_answer_ = false;
  Ended ended_;
};

}  // namespace

template <typename Request, typename Response, typename Method>
Cancel SupervisedActorImpl::invoke(std::string_view name, Method method, Request request, const CallOptions& options,
                                   Callback<Response> callback) {
  auto call = std::make_unique<PendingCall<Request, Response, Method>>();
  call->name = name;
  call->method = method;
  call->request = std::move(request);
  call->callback = std::move(callback);
  Cancel cancel = cancel_of(call->context);
  run_call(std::move(call), options);
  return cancel;
}

template <typename Call>
void SupervisedActorImpl::run_call(std::unique_ptr<Call> call, const CallOptions& options) {
  std::optional<Error> refusal;
  bool watched = false;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kReady) {
      ++in_flight_;
      call->connection = connection_;
    } else {
      refusal = not_ready_locked();
      watched = state_ != State::kIdle && state_ != State::kStopped && !stopping_;
      if (watched) {
        ++in_flight_;
        auto settle = [this, shared = std::shared_ptr<Call>(std::move(call))](Error error) {
          shared->answer(std::move(error));
          call_done();
        };
        unsettled_.push_back({nullptr, *refusal, 0, std::move(settle)});
        wake();
      }
    }
  }
  if (refusal) {
    if (!watched) call->answer(*refusal);  // NOLINT(bugprone-use-after-move): moved only where watched
    return;
  }
  call->context->set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(options.timeout));
  telemetry::inject(options.trace, [&](std::string_view key, std::string value) {
    call->context->AddMetadata(std::string(key), std::move(value));
  });
  if (std::string ids = options.ids.SerializeAsString(); !ids.empty()) {
    call->context->AddMetadata(kIdsMetadata, std::move(ids));
  }
  Call* raw = call.release();
  raw->start([this, raw](const grpc::Status& status) { finish_call(std::unique_ptr<Call>(raw), status); });
}

template <typename Call>
void SupervisedActorImpl::finish_call(std::unique_ptr<Call> call, const grpc::Status& status) {
  std::optional<Error> error;
  if (status.ok()) {
    gauges_.answered(system_clock().monotonic());
  } else {
    error = from_grpc(status, *call->context);
    if (!error) {
      MutexLock lock(mutex_);
      if (call->connection->death) {
        error = call->connection->death;
      } else {
        const std::shared_ptr<Connection> connection = call->connection;
        auto settle = [this, shared = std::shared_ptr<Call>(std::move(call))](Error why) {
          shared->answer(std::move(why));
          call_done();
        };
        unsettled_.push_back(
            {connection,
             unavailable("the connection to the worker of base model " + spec_.base_model + " broke; try again",
                         "worker_connection_lost"),
             system_clock().monotonic() + kDeathNewsWait, std::move(settle)});
        wake();  // under the lock: once this call is settled, stop() may take the rest away
      }
    }
  }
  if (call == nullptr) return;
  if (error) {
    call->answer(std::move(*error));  // NOLINT(bugprone-use-after-move): null where it was moved
  } else {
    call->answer(std::move(call->response));
  }
  call_done();
}

// The last that a call does with this object, which stop() waits for.
void SupervisedActorImpl::call_done() {
  MutexLock lock(mutex_);
  --in_flight_;
  changed_.notify_all();
}

using Async = v1::ModelActor::StubInterface::async_interface;

// The overload of a generated method that takes a callback.
template <typename Request, typename Response>
using AsyncMethod = void (Async::*)(grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

void SupervisedActorImpl::describe(const CallOptions& options, Callback<v1::DescribeResponse> callback) {
  const AsyncMethod<v1::DescribeRequest, v1::DescribeResponse> method = &Async::Describe;
  invoke("Describe", method, v1::DescribeRequest(), options, std::move(callback));
}

void SupervisedActorImpl::create_adapter(v1::CreateAdapterRequest request, const CallOptions& options,
                                         Callback<v1::CreateAdapterResponse> callback) {
  const AsyncMethod<v1::CreateAdapterRequest, v1::CreateAdapterResponse> method = &Async::CreateAdapter;
  invoke("CreateAdapter", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::remove_adapter(v1::RemoveAdapterRequest request, const CallOptions& options,
                                         Callback<v1::RemoveAdapterResponse> callback) {
  const AsyncMethod<v1::RemoveAdapterRequest, v1::RemoveAdapterResponse> method = &Async::RemoveAdapter;
  invoke("RemoveAdapter", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::forward_backward(v1::ForwardBackwardRequest request, const CallOptions& options,
                                           Callback<v1::ForwardBackwardResponse> callback) {
  const AsyncMethod<v1::ForwardBackwardRequest, v1::ForwardBackwardResponse> method = &Async::ForwardBackward;
  invoke("ForwardBackward", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::optim_step(v1::OptimStepRequest request, const CallOptions& options,
                                     Callback<v1::OptimStepResponse> callback) {
  const AsyncMethod<v1::OptimStepRequest, v1::OptimStepResponse> method = &Async::OptimStep;
  invoke("OptimStep", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::save_state(v1::SaveStateRequest request, const CallOptions& options,
                                     Callback<v1::SaveStateResponse> callback) {
  const AsyncMethod<v1::SaveStateRequest, v1::SaveStateResponse> method = &Async::SaveState;
  invoke("SaveState", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::load_state(v1::LoadStateRequest request, const CallOptions& options,
                                     Callback<v1::LoadStateResponse> callback) {
  const AsyncMethod<v1::LoadStateRequest, v1::LoadStateResponse> method = &Async::LoadState;
  invoke("LoadState", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::add_sampler(v1::AddSamplerRequest request, const CallOptions& options,
                                      Callback<v1::AddSamplerResponse> callback) {
  const AsyncMethod<v1::AddSamplerRequest, v1::AddSamplerResponse> method = &Async::AddSampler;
  invoke("AddSampler", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::remove_sampler(v1::RemoveSamplerRequest request, const CallOptions& options,
                                         Callback<v1::RemoveSamplerResponse> callback) {
  const AsyncMethod<v1::RemoveSamplerRequest, v1::RemoveSamplerResponse> method = &Async::RemoveSampler;
  invoke("RemoveSampler", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::publish_adapter(v1::PublishAdapterRequest request, const CallOptions& options,
                                          Callback<v1::PublishAdapterResponse> callback) {
  const AsyncMethod<v1::PublishAdapterRequest, v1::PublishAdapterResponse> method = &Async::PublishAdapter;
  invoke("PublishAdapter", method, std::move(request), options, std::move(callback));
}

void SupervisedActorImpl::save_sampler(v1::SaveSamplerRequest request, const CallOptions& options,
                                       Callback<v1::SaveSamplerResponse> callback) {
  const AsyncMethod<v1::SaveSamplerRequest, v1::SaveSamplerResponse> method = &Async::SaveSampler;
  invoke("SaveSampler", method, std::move(request), options, std::move(callback));
}

Cancel SupervisedActorImpl::sample(v1::SampleRequest request, const CallOptions& options,
                                   Callback<v1::SampleResponse> callback) {
  const AsyncMethod<v1::SampleRequest, v1::SampleResponse> method = &Async::Sample;
  return invoke("Sample", method, std::move(request), options, std::move(callback));
}

Cancel SupervisedActorImpl::stream_sample(v1::SampleRequest request, const CallOptions& options, OnTokens on_tokens,
                                          Callback<v1::SampleResponse> callback) {
  auto call = std::make_unique<StreamCall>();
  call->name = "StreamSample";
  call->request = std::move(request);
  call->on_tokens = std::move(on_tokens);
  call->callback = std::move(callback);
  Cancel cancel = cancel_of(call->context);
  run_call(std::move(call), options);
  return cancel;
}

void SupervisedActorImpl::collect_metrics(Callback<v1::CollectMetricsResponse> callback) {
  const AsyncMethod<v1::CollectMetricsRequest, v1::CollectMetricsResponse> method = &Async::CollectMetrics;
  invoke("CollectMetrics", method, v1::CollectMetricsRequest(), {.trace = {}, .timeout = kCollectTimeout},
         std::move(callback));
}

void SupervisedActorImpl::collect_traces(v1::CollectTracesRequest request,
                                         Callback<v1::CollectTracesResponse> callback) {
  const AsyncMethod<v1::CollectTracesRequest, v1::CollectTracesResponse> method = &Async::CollectTraces;
  invoke("CollectTraces", method, std::move(request), {.trace = {}, .timeout = kCollectTracesTimeout},
         std::move(callback));
}

void SupervisedActorImpl::keep_traces(v1::KeepTracesRequest request) {
  const AsyncMethod<v1::KeepTracesRequest, v1::KeepTracesResponse> method = &Async::KeepTraces;
  const Callback<v1::KeepTracesResponse> nobody_asks = [](const Result<v1::KeepTracesResponse>&) {};
  invoke("KeepTraces", method, std::move(request), {.trace = {}, .timeout = kCollectTimeout}, nobody_asks);
}

}  // namespace tuft::actor
