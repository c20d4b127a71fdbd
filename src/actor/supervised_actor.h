// The implementation of SupervisedActor: a watcher thread that owns the lives of the worker, and calls that gRPC runs.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "actor/supervisor.h"
#include "actor/worker_gauges.h"
#include "actor/worker_source.h"
#include "base/mutex.h"
#include "tuft/worker/v1/model_actor.grpc.pb.h"

namespace tuft::actor {

// The connection to one life of the worker.
struct Connection {
  explicit Connection(const std::shared_ptr<grpc::Channel>& channel)
      : stub(worker::v1::ModelActor::NewStub(channel)), unary(channel) {}

  const std::unique_ptr<worker::v1::ModelActor::Stub> stub;
  // Calls a unary method by its name.
  grpc::TemplatedGenericStub<google::protobuf::MessageLite, google::protobuf::MessageLite> unary;
  // The rest is guarded by SupervisedActorImpl::mutex_.
  // The calls of this life that have not ended. They are cancelled when it ends: that its connection breaks then is not
  // enough, because a call may just be on its way to gRPC, or wait there for a new connection.
  std::unordered_set<std::shared_ptr<grpc::ClientContext>> calls;
  std::optional<Error> death;  // the cause of death of this life, written once
};

class PendingCall;

// It has many methods because the watcher's steps and the ends of calls share one state machine under one lock.
class SupervisedActorImpl final : public SupervisedActor {
 public:
  SupervisedActorImpl(Supervision supervision, std::unique_ptr<WorkerSource> source);
  ~SupervisedActorImpl() override { stop(); }

  Status start() override;
  void stop() override;
  Status wait_ready(Nanos timeout) override;

  const std::string& base_model() const override { return spec_.base_model; }
  bool ready() const override;
  bool up() const override;
  uint64_t incarnation() const override;
  WorkerState state() const override { return gauges_.state(); }
  std::vector<WorkerRow> workers() const override { return rows_->all(); }
  void on_ready(std::function<void(uint64_t)> callback) override { on_ready_ = std::move(callback); }
  void on_draining(std::function<void(uint64_t, Nanos)> callback) override { on_draining_ = std::move(callback); }
  void let_go(uint64_t incarnation) override;

  Cancel stream_sample(worker::v1::SampleRequest request, const CallOptions& options, OnTokens on_tokens,
                       Callback<worker::v1::SampleResponse> callback) override;

 private:
  enum class State : uint8_t { kIdle, kStarting, kReady, kDead, kStopped };

  // A failed call that the watcher thread answers: with `error`, or with the cause of death of `connection` if that
  // becomes known before `give_up`.
  struct Unsettled {
    std::shared_ptr<Connection> connection;  // null: answer with `error` at once
    Error error;
    Nanos give_up = 0;
    std::shared_ptr<PendingCall> call;
  };
  // One worker from start to end. Confined to the watcher thread.
  struct Life;

  Cancel send(std::unique_ptr<Call> call, const CallOptions& options) override;
  Cancel begin_call(const std::shared_ptr<PendingCall>& call, const CallOptions& options);
  void end_call(const std::shared_ptr<PendingCall>& call, const grpc::Status& status);
  void settle_later_locked(Unsettled call) TUFT_REQUIRES(mutex_);
  // Answers the calls whose error is known by now, or will not become known.
  void settle_calls();
  void call_done();

  void watch();
  bool live(uint64_t incarnation);
  std::string watch_life(Life& life);
  bool start_up(Life& life, std::string& failure);
  void ask_whether_ready(Life& life, const std::shared_ptr<grpc::Channel>& channel);
  bool lease_ended(const Life& life, std::string& failure) const;
  void become_ready(Life& life);
  void ask_for_life_sign(Life& life);
  void note_life_sign(Life& life);
  void show(const Life& life, WorkerState state);
  void set_answering(const Life& life, bool answering);
  void note_drain(Life& life);
  bool may_go(const Life& life) const;
  std::string end_worker(Life& life);
  void await_end(const Life& life);
  void await_worker();
  enum class Ending : uint8_t { kDied, kLeft, kStopped };
  void note_begin(uint64_t incarnation, const WorkerLife& worker);
  void declare_dead(const std::shared_ptr<Connection>& connection, const std::string& how, Ending ending);
  void pause(Nanos delay);
  bool wait_for_wake(int ended_fd, Nanos timeout);
  void wake() const;
  bool stopping() const;
  Error not_ready_locked() const TUFT_REQUIRES(mutex_);
  // Returns the connection for a call that is meant for `incarnation`, or why there is none.
  Result<std::shared_ptr<Connection>> connection_locked(uint64_t incarnation) const TUFT_REQUIRES(mutex_);
  std::string describe(const std::string& how) const;
  // `ending`: of a worker that did not leave, or become no life at all.
  Error died(const std::string& how, Ending ending) const;

  const Supervision spec_;
  const std::shared_ptr<WorkerRows> rows_;
  WorkerGauges gauges_;
  const std::unique_ptr<WorkerSource> source_;
  telemetry::SpanContext trace_;            // the context in which start() was called
  std::function<void(uint64_t)> on_ready_;  // set before start, as the next
  std::function<void(uint64_t, Nanos)> on_draining_;
  std::optional<Ending> former_;  // of the life before; the watcher's
  int wake_fd_ = -1;
  std::thread watcher_;

  mutable Mutex mutex_;
  CondVar changed_;
  State state_ TUFT_GUARDED_BY(mutex_) = State::kIdle;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  bool answering_ TUFT_GUARDED_BY(mutex_) = true;  // while kReady
  uint64_t incarnation_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t let_go_ TUFT_GUARDED_BY(mutex_) = 0;              // the life that may end
  std::optional<Error> last_death_ TUFT_GUARDED_BY(mutex_);  // for callers
  std::string death_ TUFT_GUARDED_BY(mutex_);                // what happened; empty while no life has failed
  std::shared_ptr<Connection> connection_ TUFT_GUARDED_BY(mutex_);
  size_t in_flight_ TUFT_GUARDED_BY(mutex_) = 0;
  std::deque<Unsettled> unsettled_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::actor
