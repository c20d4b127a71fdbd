// The engine thread: the one place that touches the engine. It takes calls from a bounded inbox and runs operations,
// training passes and steps of the sampler under a split of its time, so that neither training nor sampling starves the
// other. Each adapter has a lane: forward and forward_backward go to the training scheduler, which packs those of all
// lanes into passes; everything else waits until those before it in its lane are through, and holds back nobody else's.
// A second thread reads and writes the files of checkpoints and of adapters that wait in pages.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "base/bounded_queue.h"
#include "base/mutex.h"
#include "engine/sample/sampler.h"
#include "worker/adapter_pager.h"
#include "worker/engine_gauges.h"
#include "worker/operation.h"
#include "worker/pass_recorder.h"
#include "worker/step_batch.h"
#include "worker/time_share.h"

namespace tuft::worker {

struct EngineLoopOptions {
  std::string base_model;  // label of metrics, attribute of spans and logs
  engine::TrainerOptions trainer;
  engine::SamplerOptions sampler;
  AdapterLimits limits;
  PagerOptions pager;
  double training_share = 0.5;     // of the engine's time, while there is sampling to do as well
  Nanos share_debt_max = kSecond;  // what one of them may owe the other
  size_t operations_max = 4096;    // accepted and not answered; over it calls are refused with kResourceExhausted
};

// Thread-safe, but for start and stop, which belong to the owner. Replies come on the engine thread (or, while
// stopping, on the thread that calls stop()).
class EngineLoop {
 public:
  using Ticket = uint64_t;

  // Starts the threads. `engine`, `clock` and what token_bytes uses outlive this.
  EngineLoop(engine::Engine& engine, EngineLoopOptions options, engine::TokenBytes token_bytes, const Clock& clock);
  ~EngineLoop();

  // An operation that is refused is answered through fail() before this returns.
  void post(std::unique_ptr<Operation> operation);

  // A ticket is taken before the request is posted, so that cancel() can never come too early.
  Ticket next_ticket() { return ++last_ticket_; }
  void post_sample(Ticket ticket, engine::SampleRequest request, engine::Sampler::Done done);
  void cancel_sample(Ticket ticket);  // unknown and finished ones are ignored
  // 0 for none. Engine thread: not in the reply to a call that was refused.
  int rank_of(const engine::AdapterId& adapter) const;

  // Answers everything with kUnavailable and ends the threads after the piece that is running. Idempotent.
  void stop();

  const engine::Engine& engine() const { return *engine_; }  // model() and weights_dtype() only
  const Clock& clock() const { return clock_; }
  int64_t steps() const { return steps_; }
  const std::string& base_model() const { return options_.base_model; }

 private:
  struct NewSample {
    Ticket ticket = 0;
    engine::SampleRequest request;
    engine::Sampler::Done done;
  };
  struct CancelSample {
    Ticket ticket = 0;
  };
  struct FileDone {
    std::string lane;
  };
  using Item = std::variant<std::unique_ptr<Operation>, NewSample, CancelSample, FileDone, std::unique_ptr<PageJob>>;
  // One of both.
  struct FileJob {
    std::string lane;
    Operation* operation = nullptr;
    std::unique_ptr<PageJob> page;
  };

  struct Lane {
    std::deque<std::unique_ptr<Operation>> operations;
    size_t training = 0;    // the first so many are with the training scheduler
    bool has_turn = false;  // the first one is in turns_, with the file thread or in stepping_
    bool begun = false;     // it has a turn, and is not in turns_ for the first time
    bool waits = false;     // for its adapter, which is in a page
  };
  struct ActiveSample {
    engine::Sampler::RequestNumber number = 0;
    std::optional<engine::AdapterId> adapter;
    std::optional<Error> instead;  // of kCancelled, where it is not the caller who cancels
  };

  // Takes the item, or says why not. Counted items have an answer to come.
  std::optional<Error> push(Item& item, bool counted) TUFT_EXCLUDES(mutex_);
  std::deque<Item> take(bool wait) TUFT_EXCLUDES(mutex_);
  void run();
  void run_files();
  void accept(Item item);
  void accept(std::unique_ptr<Operation> operation);
  void accept(NewSample sample);
  void accept(const CancelSample& cancel);
  void accept(std::unique_ptr<PageJob> job);
  bool at_work(const engine::AdapterId& adapter) const;
  void start_sample(NewSample sample);
  std::map<Ticket, ActiveSample>::node_type take_sample(Ticket ticket);
  void proceed(const std::string& lane);
  void set_waits(Lane& lane, bool waits);
  size_t waiting_for_adapter() const;
  void advance_next_lane();
  void fail_waiting(Lane& lane);
  void take_steps();
  void run_training_piece();
  void trained(Operation& operation);
  Result<Operation::Progress> advance(Operation& operation);
  void cancel_samples_of(const engine::AdapterId& adapter);
  void finished(int count);
  void publish();
  size_t accepted() const TUFT_EXCLUDES(mutex_);

  void run_piece();

  const std::unique_ptr<TracedEngine> engine_;
  const EngineLoopOptions options_;
  const Clock& clock_;
  std::atomic<Ticket> last_ticket_{0};
  std::atomic<int64_t> steps_{0};

  mutable Mutex mutex_;
  CondVar arrived_;
  std::deque<Item> inbox_ TUFT_GUARDED_BY(mutex_);
  size_t unanswered_ TUFT_GUARDED_BY(mutex_) = 0;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;

  // The engine thread's own.
  std::map<std::string, Lane> lanes_;
  size_t lanes_waiting_ = 0;       // whose adapter is in a page
  std::deque<std::string> turns_;  // lanes whose first operation can go on and does not train, in order
  int turns_in_a_row_ = 0;         // without a pass between
  std::map<Ticket, ActiveSample> samples_;
  std::unordered_map<engine::AdapterId, int> sampling_;                // how many of them use it
  std::unordered_map<engine::AdapterId, std::deque<NewSample>> held_;  // until their adapter is back
  std::unique_ptr<engine::Sampler> sampler_;
  TimeShare share_;
  const OperationMetrics metrics_;
  PassRecorder passes_;
  StepBatch stepping_;
  const std::unique_ptr<engine::TrainScheduler> trainer_;
  AdapterPager pager_;
  Bench bench_;
  engine::AdapterMemory adapter_memory_;

  EngineGauges gauges_;

  BoundedQueue<FileJob> files_;
  std::atomic<bool> skip_files_{false};
  std::thread engine_thread_;
  std::thread file_thread_;
};

}  // namespace tuft::worker
