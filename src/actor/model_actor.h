// The ModelActor port: the control plane's view of one base model that runs in another process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "actor/worker_rows.h"
#include "base/clock.h"
#include "base/result.h"
#include "rpc/methods.h"
#include "telemetry/context.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::actor {

// Runs exactly once for each call, on a thread of the implementation or inside the call. Must not block.
template <typename Response>
using Callback = std::function<void(Result<Response>)>;

// Cancels the call that returned it. The call then fails with kCancelled, unless it has ended before. Thread-safe. May
// outlive the call and the actor. Requires that the caller holds no lock that the call's callbacks take.
using Cancel = std::function<void()>;

struct CallOptions {
  telemetry::SpanContext trace = {};  // the parent of the worker's spans
  Nanos timeout = 0;                  // 0: the default of the method, see rpc/methods.h
  worker::v1::CallIds ids = {};       // for the worker's spans and logs; unknown ids stay empty
  // The life of the worker that the call is for; in another one it fails as "worker_died". 0: any life.
  uint64_t incarnation = 0;
};

// A call without its message types, for implementations of ModelActor.
class Call {
 public:
  explicit Call(const rpc::Method& description) : method(description) {}
  virtual ~Call() = default;

  virtual const google::protobuf::MessageLite& request() const = 0;
  virtual google::protobuf::MessageLite& response() = 0;
  // Runs the callback with response(), or with the error. Called exactly once.
  virtual void answer(Status status) = 0;

  const rpc::Method& method;
};

template <typename Method>
class CallOf final : public Call {
 public:
  using Request = typename Method::Request;
  using Response = typename Method::Response;

  CallOf(std::shared_ptr<const Request> request, Callback<Response> callback)
      : Call(Method::kMethod), request_(std::move(request)), callback_(std::move(callback)) {}

  const Request& request() const override { return *request_; }
  Response& response() override { return response_; }
  void answer(Status status) override {
    // What the callback holds goes before the call counts as ended.
    const Callback<Response> callback = std::exchange(callback_, nullptr);
    callback(status.ok() ? Result<Response>(std::move(response_)) : Result<Response>(std::move(status).error()));
  }

 private:
  const std::shared_ptr<const Request> request_;
  Response response_;
  Callback<Response> callback_;
};

// The reason of calls whose worker joined and is not connected any more. It may come back, in another life, with its
// adapters and with the answers of calls that have a request_id (list_holdings()).
inline constexpr std::string_view kWorkerDisconnected = "worker_disconnected";

// Returns whether a call failed because its worker is not there, so that it may succeed at the next one, and nobody
// knows what it has done. Any other error is the answer of a worker that goes on as it was, for instance that the
// bucket of checkpoints is away, which is kUnavailable as well.
bool is_worker_lost(const Error& error);

// Thread-safe. Calls return at once; the answer comes through the callback.
//
// A call fails with the worker's error, with kUnavailable and the reason "worker_died", kWorkerDisconnected,
// "worker_connection_lost", "worker_starting", "worker_stopped" or "not_leader" if there is no worker for it
// (is_worker_lost()), or with kDeadlineExceeded if it has a time limit. A call without a time limit ends with its
// answer or with the life of its worker, whichever comes first. A call that a worker refuses because it stops ends with
// its life.
class ModelActor {
 public:
  virtual ~ModelActor() = default;

  virtual const std::string& base_model() const = 0;
  // Returns true if the worker is up and answers. If it is not up, calls fail with kUnavailable. If it is up and does
  // not answer, for instance because it was stopped, calls wait for it.
  virtual bool ready() const = 0;
  // Returns true if the worker is up, whether it answers or not: what it holds in memory is not lost.
  virtual bool up() const = 0;
  // Returns the state of the worker in the words of its row: kAbsent while it waits for one to join, kDead after the
  // end of a life.
  virtual WorkerState state() const = 0;
  // Returns the number of the worker's current life, at least 1 and different from those of all other workers of the
  // base model. A later life has a larger number. Each restart loses what was in the worker's memory.
  virtual uint64_t incarnation() const = 0;
  // Returns the workers of the base model that serve it, wait to serve it, or are gone, in the order in which they
  // came.
  virtual std::vector<WorkerRow> workers() const { return {}; }
  // Sets the callback that runs with the incarnation each time a worker has become ready, the first time included. It
  // runs again with the same incarnation when a worker answers that did not answer for a while.
  // Requires that the actor was not started yet.
  virtual void on_ready(std::function<void(uint64_t incarnation)> callback) = 0;

  // Sets the callback that runs once for a life whose worker was told to end, with the time that it still serves. Then
  // let_go() ends that life in order. Requires that the actor was not started yet.
  virtual void on_draining(std::function<void(uint64_t incarnation, Nanos limit)> callback) = 0;
  // Ends a life whose worker is draining. Does nothing in another one.
  virtual void let_go(uint64_t incarnation) = 0;

  // Calls a unary method, for instance call<rpc::Describe>({}, {}, callback).
  template <typename Method>
  Cancel call(typename Method::Request request, const CallOptions& options,
              Callback<typename Method::Response> callback) {
    return call<Method>(std::make_shared<const typename Method::Request>(std::move(request)), options,
                        std::move(callback));
  }
  // The same for a request that the caller may send again.
  template <typename Method>
  Cancel call(std::shared_ptr<const typename Method::Request> request, const CallOptions& options,
              Callback<typename Method::Response> callback) {
    return send(std::make_unique<CallOf<Method>>(std::move(request), std::move(callback)), options);
  }

  // Each unary method of rpc/methods.h has a member function, for instance
  //   Cancel create_adapter(CreateAdapterRequest, const CallOptions&, Callback<CreateAdapterResponse>).
#define TUFT_CALL(Name, function, timeout)                                       \
  Cancel function(worker::v1::Name##Request request, const CallOptions& options, \
                  Callback<worker::v1::Name##Response> callback) {               \
    return call<rpc::Name>(std::move(request), options, std::move(callback));    \
  }
  TUFT_UNARY_METHODS(TUFT_CALL)
#undef TUFT_CALL

  // Receives new tokens in the order in which they are drawn, one call at a time, before the callback gets the answer.
  using OnTokens = std::function<void(const worker::v1::SampleDelta&)>;
  virtual Cancel stream_sample(worker::v1::SampleRequest request, const CallOptions& options, OnTokens on_tokens,
                               Callback<worker::v1::SampleResponse> callback) = 0;

 private:
  virtual Cancel send(std::unique_ptr<Call> call, const CallOptions& options) = 0;
};

}  // namespace tuft::actor
