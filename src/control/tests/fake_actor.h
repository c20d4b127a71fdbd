// A model actor without a process or a model. The weights of an adapter are one number, and optim_step adds one to it.
// A checkpoint is a directory with a file that holds this number. A sampler samples the number of its checkpoint. The
// record of each sequence has the tokens 40 41 42 with the log-probabilities -0.5 -1.5 -2.5.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actor/model_actor.h"
#include "bucket/bucket.h"

namespace tuft::control {

// It has more than 25 methods because tests set and read each part of its behaviour.
class FakeActor final : public actor::ModelActor {
 public:
  // `lives` counts those of all workers of the base model; by default there is one.
  explicit FakeActor(std::string base_model,
                     std::shared_ptr<std::atomic<uint64_t>> lives = std::make_shared<std::atomic<uint64_t>>(0));

  // With `hold`, a call waits for answer_next(). Otherwise, which is the default, it is answered before it returns.
  void hold_answers(bool hold) { hold_ = hold; }
  bool answer_next() { return answer_any(0); }
  bool answer_any(size_t which);  // of the held calls, oldest first
  void answer_all();
  void stop_holding();  // answers the held calls, and from now on all calls at once
  size_t held() const;

  // Becomes ready with the next incarnation, and runs the on_ready callback.
  void start();
  // The two steps of start(). A worker that answers again after a silence does the second one alone.
  void come_up();
  void say_ready();
  void die();  // is no longer ready, fails the held calls and forgets adapters, samplers and its outbox
  void restart() {
    die();
    start();
  }
  // The connection to the worker breaks, and the worker keeps what it holds. The held calls have come to it and are
  // finished there if `finishes`, and else they were lost on the way. start() connects it again.
  void disconnect(bool finishes = true);
  // The worker joins the place of `other` with what it holds, for instance at another server.
  void move_to(FakeActor& other);
  void set_ready(bool ready) { ready_ = ready; }
  // The worker joined: a call for an earlier life fails as one whose worker may come back.
  void set_joined(bool joined) { joined_ = joined; }
  // The connection to a local worker breaks, which finishes the held calls and remembers none.
  void lose_connection();
  // The worker is told to end.
  void drain(Nanos limit) { on_draining_(incarnation_, limit); }
  // Returns the life that was let go; 0: none.
  uint64_t left() const { return left_; }

  // Set values of the answers: the wait in the worker, and the loss of a pass.
  void set_queue_seconds(double seconds) { queue_seconds_ = seconds; }
  void set_loss(double sum, double weight_sum) {
    loss_sum_ = sum;
    weight_sum_ = weight_sum;
  }
  // The worker's bucket of checkpoints: a directory that is not absolute is there.
  void set_bucket(std::unique_ptr<bucket::Bucket> bucket) { bucket_ = std::move(bucket); }
  // From now on, optimizer steps make weights that are not finite.
  void set_breaks_weights(bool breaks) { breaks_weights_ = breaks; }
  // From now on, optimizer steps find no gradient, or one that is not finite.
  void set_without_gradient(bool without) { without_gradient_ = without; }
  void set_nonfinite_gradient(bool nonfinite) { nonfinite_gradient_ = nonfinite; }
  // The next call of `function`, for instance "optim_step", fails.
  void fail_next(const std::string& function, Error error);
  // Runs before the next call of `function` arrives.
  void before_next(const std::string& function, std::function<void()> action);
  // Runs when up() is called next, after its answer is made.
  void after_next_up(std::function<void()> action) { before_next("up", std::move(action)); }

  // Returns "optim_step <adapter>" and so on, in order of arrival. forward_backward has its loss_fn added.
  std::vector<std::string> calls() const;
  std::vector<std::string> calls_of(const std::string& function) const;
  void clear_calls();
  int weights_of(const std::string& adapter) const;
  size_t adapters() const;
  size_t samplers() const;
  worker::v1::CreateAdapterRequest last_create() const;
  worker::v1::SampleRequest last_sample() const;
  worker::v1::ForwardBackwardRequest last_pass() const;

  const std::string& base_model() const override { return base_model_; }
  bool ready() const override { return ready_; }
  bool up() const override;
  actor::WorkerState state() const override {
    if (ready_) return actor::WorkerState::kReady;
    if (up_) return actor::WorkerState::kSilent;
    return incarnation_ == 0 ? actor::WorkerState::kStarting : actor::WorkerState::kDead;
  }
  uint64_t incarnation() const override { return incarnation_; }
  void on_ready(std::function<void(uint64_t)> callback) override { on_ready_ = std::move(callback); }
  void on_draining(std::function<void(uint64_t, Nanos)> callback) override { on_draining_ = std::move(callback); }
  void let_go(uint64_t incarnation) override { left_ = incarnation; }

  // Sends all tokens of the answer in one delta before it.
  actor::Cancel stream_sample(worker::v1::SampleRequest request, const actor::CallOptions& options, OnTokens on_tokens,
                              actor::Callback<worker::v1::SampleResponse> done) override;

  // The answer of collect_metrics(), and the traces that keep_traces() got.
  void set_metrics_snapshot(std::string snapshot);
  std::vector<worker::v1::TraceId> kept_traces() const;
  // What take_telemetry() gets, until it is confirmed.
  void put_into_outbox(worker::v1::TakeTelemetryResponse::Batch batch);
  size_t outbox_size() const;
  // Larger answers of take_telemetry() do not come within the time of the call.
  void set_link_bytes(size_t bytes) { link_bytes_ = bytes; }

 private:
  struct Held {
    std::unique_ptr<actor::Call> call;
    uint64_t number = 0;
    worker::v1::CallIds ids = {};
  };
  // A call that it remembers, see worker/kept_calls.h.
  struct Kept {
    worker::v1::HeldCall call;
    std::optional<std::string> answer;  // nothing: it was refused, or not begun
  };
  // Runs under mutex_ and fills the response.
  using Work =
      std::function<Status(const google::protobuf::MessageLite& request, google::protobuf::MessageLite& response)>;
  // Returns the words after the name of the function in calls().
  using Detail = std::function<std::string(const google::protobuf::MessageLite& request)>;
  struct Handler {
    Detail detail;  // empty: the call is not in calls(), is never held and needs no worker
    Work work;
  };

  actor::Cancel send(std::unique_ptr<actor::Call> call, const actor::CallOptions& options) override;
  void cancel(uint64_t number);
  std::function<void()> take_action(const std::string& function) const;
  std::optional<Error> take_failure_locked(const std::string& function);  // requires mutex_
  void keep_refused_locked(const actor::Call& call, const worker::v1::CallIds& ids);
  void answer(actor::Call& call, const worker::v1::CallIds& ids);
  // Runs the call, or gets the answer of the same call. Requires mutex_.
  Status run(actor::Call& call, const worker::v1::CallIds& ids);
  void list_holdings(worker::v1::ListHoldingsResponse& response) const;
  void end_held(bool finishes, const std::string& reason);

  // `detail(request)` and `work(request, response)` get the messages of the method.
  template <typename Method, typename DetailOf, typename WorkOf>
  void on(DetailOf detail, WorkOf work);
  template <typename Method, typename WorkOf>
  void on_unrecorded(WorkOf work);
  void handle_training();
  void handle_samplers();
  void handle_telemetry();
  Status write(const std::string& directory, const std::map<std::string, std::string>& files) const;
  Status write_weights(const std::string& directory, int weights) const;
  Result<int> read_weights(const std::string& directory) const;
  // Require mutex_.
  Result<int*> find(std::map<std::string, int>& weights, const std::string& id, const char* what);
  static void record(worker::v1::SequenceRecord& record);
  Status sample(const worker::v1::SampleRequest& request, worker::v1::SampleResponse& response);

  const std::string base_model_;
  const std::shared_ptr<std::atomic<uint64_t>> lives_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> up_{false};
  std::atomic<uint64_t> incarnation_{0};
  std::atomic<bool> hold_{false};
  bool joined_ = false;
  std::atomic<double> queue_seconds_{0};
  std::atomic<double> loss_sum_{0};
  std::atomic<double> weight_sum_{0};
  std::atomic<bool> breaks_weights_{false};
  std::atomic<bool> without_gradient_{false};
  std::atomic<bool> nonfinite_gradient_{false};
  std::atomic<uint64_t> left_{0};
  std::atomic<size_t> link_bytes_{std::numeric_limits<size_t>::max()};
  std::function<void(uint64_t)> on_ready_;
  std::function<void(uint64_t, Nanos)> on_draining_;
  std::unique_ptr<bucket::Bucket> bucket_;  // null: there is none

  std::map<std::string_view, Handler> handlers_;  // by function

  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::string> calls_;
  std::map<std::string, Error> failures_;
  mutable std::map<std::string, std::function<void()>> actions_;
  std::deque<Held> held_;
  uint64_t last_call_ = 0;
  std::map<std::string, int> adapters_;            // weights
  std::map<std::string, int> samplers_;            // weights
  std::map<std::string, std::vector<Kept>> kept_;  // by adapter
  worker::v1::CreateAdapterRequest last_create_;
  worker::v1::SampleRequest last_sample_;
  worker::v1::ForwardBackwardRequest last_pass_;
  std::string metrics_snapshot_;
  std::vector<worker::v1::TraceId> kept_traces_;
  std::vector<worker::v1::TakeTelemetryResponse::Batch> outbox_;
};

// Returns the number in a serialized tinker_public.SampleResponse, or -2 if there is none.
int sampled_number(const std::string& sample_response_bytes);

}  // namespace tuft::control
