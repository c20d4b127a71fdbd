// The calls of SupervisedActorImpl: one gRPC call each, answered on gRPC's threads.
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "actor/supervised_actor.h"
#include "metrics/workers.h"
#include "rpc/status.h"

namespace tuft::actor {

namespace v1 = worker::v1;

bool is_worker_lost(const Error& error) {
  constexpr std::array<std::string_view, 6> kReasons = {
      "worker_died", kWorkerDisconnected, "worker_connection_lost", "worker_starting", "worker_stopped", "not_leader"};
  return std::find(kReasons.begin(), kReasons.end(), error.reason) != kReasons.end();
}

// A call that has not been answered yet.
class PendingCall {
 public:
  using Ended = std::function<void(const grpc::Status&)>;

  explicit PendingCall(std::unique_ptr<Call> call) : call_(std::move(call)) {}
  virtual ~PendingCall() = default;

  // Passes the call to gRPC, which runs `ended` once.
  void start(const std::shared_ptr<Connection>& connection, const CallOptions& options, Ended ended) {
    connection_ = connection;
    const Nanos timeout = options.timeout > 0 ? options.timeout : call_->method.timeout;
    if (timeout != rpc::kNoTimeout) {
      context_->set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout));
    }
    telemetry::inject(options.trace, [&](std::string_view key, const std::string& value) {
      context_->AddMetadata(std::string(key), value);
    });
    if (const std::string ids = options.ids.SerializeAsString(); !ids.empty()) {
      context_->AddMetadata(rpc::kIdsMetadata, ids);
    }
    send(*connection, *context_, *call_, std::move(ended));
  }

  void answer(Status status) {
    const double seconds = to_seconds(system_clock().monotonic() - begin_);
    const std::string_view outcome = status.ok() ? "ok" : error_code_name(status.error().code);
    metrics::workers().rpc_duration.record(seconds, {{"method", call_->method.name}, {"status", outcome}});
    call_->answer(std::move(status));
  }

  // Null before start().
  const std::shared_ptr<Connection>& connection() const { return connection_; }
  // Shared, because a Cancel may outlive the call.
  const std::shared_ptr<grpc::ClientContext>& context() const { return context_; }

 private:
  virtual void send(Connection& connection, grpc::ClientContext& context, Call& call, Ended ended) = 0;

  const std::unique_ptr<Call> call_;
  const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  std::shared_ptr<Connection> connection_;
  const Nanos begin_ = system_clock().monotonic();
};

namespace {

// Different threads notice that a connection broke and that its process died. After a call's connection broke, the call
// waits so long for the cause of death.
constexpr Nanos kCauseOfDeathWait = 2 * kSecond;

// Returns whether a worker answers so because it stops. All that it holds goes with it, so its end is what such a call
// waits for, however long that takes.
bool is_of_stopping_worker(const Error& error) {
  return error.reason == "worker_stopping" || error.reason == "bucket_cancelled";
}

class UnaryCall final : public PendingCall {
 public:
  using PendingCall::PendingCall;

 private:
  void send(Connection& connection, grpc::ClientContext& context, Call& call, Ended ended) override {
    std::string path = std::string("/") + v1::ModelActor::service_full_name() + "/";
    connection.unary.UnaryCall(&context, path.append(call.method.name), {}, &call.request(), &call.response(),
                               std::move(ended));
  }
};

// gRPC uses this object until OnDone().
class StreamCall final : public PendingCall, public grpc::ClientReadReactor<v1::SampleDelta> {
 public:
  using TypedCall = CallOf<rpc::StreamSample>;

  StreamCall(std::unique_ptr<TypedCall> call, ModelActor::OnTokens on_tokens)
      : PendingCall(std::move(call)), on_tokens_(std::move(on_tokens)) {}

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (delta_.has_answer()) {
      has_answer_ = true;
      typed_call_->response() = std::move(*delta_.mutable_answer());
    } else {
      on_tokens_(delta_);
    }
    StartRead(&delta_);
  }

  void OnDone(const grpc::Status& status) override {
    const bool cut = status.ok() && !has_answer_;
    // Holds the last reference to this object.
    const Ended ended = std::move(ended_);
    ended(cut ? grpc::Status(grpc::StatusCode::INTERNAL, "the worker ended a sample without a response") : status);
  }

 private:
  void send(Connection& connection, grpc::ClientContext& context, Call& call, Ended ended) override {
    ended_ = std::move(ended);
    typed_call_ = static_cast<TypedCall*>(&call);
    connection.stub->async()->StreamSample(&context, &typed_call_->request(), this);
    StartRead(&delta_);
    StartCall();
  }

  const ModelActor::OnTokens on_tokens_;
  TypedCall* typed_call_ = nullptr;
  v1::SampleDelta delta_;
  bool has_answer_ = false;
  Ended ended_;
};

}  // namespace

Cancel SupervisedActorImpl::send(std::unique_ptr<Call> call, const CallOptions& options) {
  return begin_call(std::make_shared<UnaryCall>(std::move(call)), options);
}

Cancel SupervisedActorImpl::stream_sample(v1::SampleRequest request, const CallOptions& options, OnTokens on_tokens,
                                          Callback<v1::SampleResponse> callback) {
  auto call = std::make_unique<CallOf<rpc::StreamSample>>(std::make_shared<const v1::SampleRequest>(std::move(request)),
                                                          std::move(callback));
  return begin_call(std::make_shared<StreamCall>(std::move(call), std::move(on_tokens)), options);
}

Cancel SupervisedActorImpl::begin_call(const std::shared_ptr<PendingCall>& call, const CallOptions& options) {
  Cancel cancel = [weak = std::weak_ptr(call->context())] {
    if (const auto running = weak.lock()) running->TryCancel();
  };
  std::shared_ptr<Connection> connection;
  std::optional<Error> refusal;
  {
    MutexLock lock(mutex_);
    auto found = connection_locked(options.incarnation);
    if (found.ok()) {
      ++in_flight_;
      connection = std::move(*found);
      connection->calls.insert(call->context());
    } else if (state_ == State::kIdle || state_ == State::kStopped || stopping_) {
      refusal = std::move(found).error();  // the watcher does not run
    } else {
      ++in_flight_;
      settle_later_locked({nullptr, std::move(found).error(), 0, call});
    }
  }
  if (refusal) call->answer(std::move(*refusal));
  if (connection != nullptr) {
    call->start(connection, options, [this, call](const grpc::Status& status) { end_call(call, status); });
  }
  return cancel;
}

Result<std::shared_ptr<Connection>> SupervisedActorImpl::connection_locked(uint64_t incarnation) const {
  if (spec_.may_call && !spec_.may_call()) return unavailable("this server does not lead any more", "not_leader");
  if (state_ != State::kReady) return not_ready_locked();
  if (incarnation != 0 && incarnation != incarnation_) return last_death_.value_or(not_ready_locked());
  return connection_;
}

void SupervisedActorImpl::end_call(const std::shared_ptr<PendingCall>& call, const grpc::Status& status) {
  std::optional<Error> error;
  if (status.ok()) {
    gauges_.gave_sign(system_clock().monotonic());
  } else {
    error = rpc::from_grpc(status, *call->context());
  }
  {
    MutexLock lock(mutex_);
    Connection& connection = *call->connection();
    connection.calls.erase(call->context());
    const bool stops = error && is_of_stopping_worker(*error);
    const bool is_cut = !status.ok() && (!error || stops || error->code == ErrorCode::kCancelled);
    if (is_cut && connection.death) {
      error = connection.death;
    } else if (is_cut && (!error || stops)) {
      return settle_later_locked(
          {call->connection(),
           unavailable("the connection to the worker of base model " + spec_.base_model + " broke; try again",
                       "worker_connection_lost"),
           stops ? std::numeric_limits<Nanos>::max() : system_clock().monotonic() + kCauseOfDeathWait, call});
    }
  }
  call->answer(error ? Status(std::move(*error)) : Status());
  call_done();
}

// Wakes the watcher while the lock is held: once the call is settled, stop() may close wake_fd_.
void SupervisedActorImpl::settle_later_locked(Unsettled call) {
  unsettled_.push_back(std::move(call));
  wake();
}

void SupervisedActorImpl::settle_calls() {
  std::vector<std::pair<std::shared_ptr<PendingCall>, Error>> settled;
  {
    MutexLock lock(mutex_);
    const Nanos time = system_clock().monotonic();
    std::erase_if(unsettled_, [&](Unsettled& unsettled) {
      const bool known = unsettled.connection != nullptr && unsettled.connection->death.has_value();
      if (unsettled.connection != nullptr && !known && time < unsettled.give_up) return false;
      settled.emplace_back(std::move(unsettled.call), known ? *unsettled.connection->death : unsettled.error);
      return true;
    });
  }
  for (auto& [call, error] : settled) {
    call->answer(std::move(error));
    call_done();
  }
}

// A call touches this object for the last time here; stop() waits for that.
void SupervisedActorImpl::call_done() {
  MutexLock lock(mutex_);
  --in_flight_;
  changed_.notify_all();
}

}  // namespace tuft::actor
