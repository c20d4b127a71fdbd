// The implementation behind make_supervised_actor(): a watcher thread that owns the process, and calls that gRPC runs.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "actor/process.h"
#include "actor/supervisor.h"
#include "actor/worker_gauges.h"
#include "base/mutex.h"
#include "tuft/worker/v1/model_actor.grpc.pb.h"

namespace tuft::actor {

// The connection of one life of the worker.
struct Connection {
  explicit Connection(const std::string& socket);

  std::unique_ptr<worker::v1::ModelActor::Stub> stub;
  // How this life ended; written once, under SupervisedActorImpl::mutex_.
  std::optional<Error> death;
};

class SupervisedActorImpl final : public SupervisedActor {
 public:
  explicit SupervisedActorImpl(WorkerSpec spec);
  ~SupervisedActorImpl() override { stop(); }

  Status start() override;
  void stop() override;
  Status wait_ready(Nanos timeout) override;

  const std::string& base_model() const override { return spec_.base_model; }
  bool ready() const override;
  uint64_t generation() const override;
  void on_ready(std::function<void(uint64_t)> callback) override { on_ready_ = std::move(callback); }

  void describe(const CallOptions&, Callback<worker::v1::DescribeResponse>) override;
  void create_adapter(worker::v1::CreateAdapterRequest, const CallOptions&,
                      Callback<worker::v1::CreateAdapterResponse>) override;
  void remove_adapter(worker::v1::RemoveAdapterRequest, const CallOptions&,
                      Callback<worker::v1::RemoveAdapterResponse>) override;
  void forward_backward(worker::v1::ForwardBackwardRequest, const CallOptions&,
                        Callback<worker::v1::ForwardBackwardResponse>) override;
  void optim_step(worker::v1::OptimStepRequest, const CallOptions&, Callback<worker::v1::OptimStepResponse>) override;
  void save_state(worker::v1::SaveStateRequest, const CallOptions&, Callback<worker::v1::SaveStateResponse>) override;
  void load_state(worker::v1::LoadStateRequest, const CallOptions&, Callback<worker::v1::LoadStateResponse>) override;
  void add_sampler(worker::v1::AddSamplerRequest, const CallOptions&,
                   Callback<worker::v1::AddSamplerResponse>) override;
  void remove_sampler(worker::v1::RemoveSamplerRequest, const CallOptions&,
                      Callback<worker::v1::RemoveSamplerResponse>) override;
  void publish_adapter(worker::v1::PublishAdapterRequest, const CallOptions&,
                       Callback<worker::v1::PublishAdapterResponse>) override;
  void save_sampler(worker::v1::SaveSamplerRequest, const CallOptions&,
                    Callback<worker::v1::SaveSamplerResponse>) override;
  Cancel sample(worker::v1::SampleRequest, const CallOptions&, Callback<worker::v1::SampleResponse>) override;
  Cancel stream_sample(worker::v1::SampleRequest, const CallOptions&, OnTokens on_tokens,
                       Callback<worker::v1::SampleResponse>) override;
  void collect_metrics(Callback<worker::v1::CollectMetricsResponse>) override;
  void keep_traces(worker::v1::KeepTracesRequest) override;
  void collect_traces(worker::v1::CollectTracesRequest, Callback<worker::v1::CollectTracesResponse>) override;

 private:
  enum class State : uint8_t { kIdle, kStarting, kReady, kDead, kStopped };

  // A call whose error is not known yet, or is to be told on the watcher thread.
  struct Unsettled {
    std::shared_ptr<Connection> connection;  // empty: `error` is what is told
    Error error;
    Nanos give_up = 0;
    std::function<void(Error)> settle;
  };
  // One process from start to end; the watcher thread's own.
  struct Life;

  template <typename Call>
  void run_call(std::unique_ptr<Call> call, const CallOptions& options);
  template <typename Call>
  void finish_call(std::unique_ptr<Call> call, const grpc::Status& status);
  template <typename Request, typename Response, typename Method>
  Cancel invoke(std::string_view name, Method method, Request request, const CallOptions& options,
                Callback<Response> callback);
  void call_done();

  void watch();
  bool live(uint64_t generation);
  std::string watch_life(Life& life);
  bool start_up(Life& life, std::string& failure);
  void ask_whether_ready(Life& life);
  void become_ready(Life& life);
  void ask_for_life_sign(Life& life);
  std::string end_process(Life& life);
  void declare_dead(const std::shared_ptr<Connection>& connection, const std::string& how);
  void pause(Nanos delay);
  void settle_calls();
  bool wait_for_wake(int ended_fd, Nanos timeout);
  void wake() const;
  bool stopping() const;
  Error not_ready_locked() const TUFT_REQUIRES(mutex_);
  Error died(const std::string& how) const;

  std::filesystem::path socket_path(uint64_t generation) const;

  const WorkerSpec spec_;
  WorkerGauges gauges_;
  telemetry::SpanContext trace_;            // of who called start()
  std::function<void(uint64_t)> on_ready_;  // set before start
  int wake_fd_ = -1;
  std::thread watcher_;

  mutable Mutex mutex_;
  CondVar changed_;
  State state_ TUFT_GUARDED_BY(mutex_) = State::kIdle;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  uint64_t generation_ TUFT_GUARDED_BY(mutex_) = 0;
  std::optional<Error> last_death_ TUFT_GUARDED_BY(mutex_);
  std::shared_ptr<Connection> connection_ TUFT_GUARDED_BY(mutex_);
  size_t in_flight_ TUFT_GUARDED_BY(mutex_) = 0;
  std::deque<Unsettled> unsettled_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::actor
