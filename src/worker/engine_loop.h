// EngineLoop: the engine thread, the only thread that uses the engine. It takes calls from a bounded inbox and runs
// operations, training passes and steps of the sampler. It splits its time so that neither training nor sampling
// starves the other. Each adapter has a queue of its operations. forward and forward_backward go to the training
// scheduler, which packs those of all adapters into passes. Every other operation waits for those before it in its
// queue, and for no other queue. The file thread reads and writes checkpoints, in a directory or in a bucket, and the
// page thread the pages of adapters, which are local: so no adapter waits in its page for a file server or a network.
// The page thread makes new adapters as well. Both make what they read ready for the engine, so that the engine thread
// has only to take it. Tenants take turns at each of the two (turn_queue.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "base/fair_queue.h"
#include "engine/sample/sampler.h"
#include "worker/adapter_pager.h"
#include "worker/engine_gauges.h"
#include "worker/inbox.h"
#include "worker/operation.h"
#include "worker/pass_recorder.h"
#include "worker/sample_requests.h"
#include "worker/step_batch.h"
#include "worker/time_share.h"
#include "worker/traced_engine.h"
#include "worker/turn_queue.h"

namespace tuft::worker {

struct EngineLoopOptions {
  std::string base_model;  // label of metrics, attribute of spans and logs
  engine::TrainerOptions trainer;
  engine::SamplerOptions sampler;
  AdapterLimits limits;
  PagerOptions pager;
  BucketCheckpoints* bucket = nullptr;  // outlives the loop; null: checkpoints are in directories
  double training_share = 0.5;          // of the engine's time, while there is sampling to do as well
  Nanos share_debt_max = kSecond;       // limit of the time that one of them may owe the other
  size_t operations_max = 4096;         // calls without an answer; more are refused with kResourceExhausted
  bool threads = true;                  // false: a test runs the steps of all threads, in an order of its own
};

// It has more than 25 methods: a short one for each transition of an operation between inbox, queues and turns, all on
// the state of one thread.
//
// Thread-safe, except construction, stop() and destruction, which belong to the owner. Replies come on the engine
// thread or, while stopping, on the thread that calls stop().
class EngineLoop {
 public:
  using Ticket = SampleRequests::Ticket;

  // Starts the threads, if options.threads. `engine`, `clock` and all that token_bytes uses outlive this.
  EngineLoop(engine::Engine& engine, EngineLoopOptions options, engine::TokenBytes token_bytes, const Clock& clock);
  ~EngineLoop();

  // Queues an operation. Answers a refused one through fail() before it returns.
  void post(std::unique_ptr<Operation> operation);

  // The caller takes a ticket before it posts the request, so that cancel_sample() never comes too early.
  Ticket next_ticket() { return ++last_ticket_; }
  void post_sample(Ticket ticket, engine::SampleRequest request, engine::Sampler::Done done);
  void cancel_sample(Ticket ticket);  // unknown and finished ones are ignored
  // Returns the rank of an adapter; 0 for an unknown one. Engine thread only: not in the reply to a refused call.
  int rank_of(const engine::AdapterId& adapter) const;

  // Answers every call with kUnavailable and ends the threads after the piece of work that is running. Idempotent.
  void stop();

  // The steps of the threads, for tests without threads: the engine's takes what the inbox holds and runs one piece of
  // work, the others run one job. Return false if there was nothing to do. One thread at a time.
  bool run_engine_step();
  bool run_file_step();
  bool run_page_step();

  const engine::Engine& engine() const { return engine_; }  // model() and weights_dtype() only
  const Clock& clock() const { return clock_; }
  int64_t steps() const { return steps_; }

 private:
  struct AdapterQueue {
    std::deque<std::unique_ptr<Operation>> operations;
    size_t training = 0;    // number of operations at the front that are with the training scheduler
    bool has_turn = false;  // the first operation is in a list of turns, with the file thread or in stepping_
    bool begun = false;     // the first operation has run before; changed by set_begun() alone
    bool waits = false;     // until the adapter is back from its page
  };

  using Queues = std::map<std::string, AdapterQueue>;

  // The operations of one kind that have an adapter in memory beside the engine: few at a time, or as many as wait for
  // a file server that hangs would take all memory.
  struct Copies {
    const int most;
    int count = 0;
    FairQueue<std::string, std::string> waiting{1};  // queues of the others, by tenant
  };

  // The run_file() of an operation.
  struct FileJob {
    std::string queue;  // of the operation
    Operation* operation = nullptr;
  };
  using PageWork = std::variant<std::unique_ptr<PageJob>, FileJob>;

  void run();
  bool run_once(bool waits);
  bool idle() const;
  void resume_queues();
  void accept(InboxItem item);
  void accept(std::unique_ptr<Operation> operation);
  void accept(std::unique_ptr<PageJob> job);
  void enqueue(std::unique_ptr<Operation>& operation);
  void proceed(Queues::iterator at);
  void proceed_or_throw(Queues::iterator at);
  void set_waits(AdapterQueue& queue, bool waits);
  void set_begun(AdapterQueue& queue, bool begun);
  bool has_turns() const { return !turns_.empty() || !step_turns_.empty() || !stepped_.empty(); }
  void run_pass();
  void add_turn(const AdapterQueue& queue, std::string name);
  void advance_queue(const std::string& name);
  void end_first(Queues::iterator at);
  void fail_waiting(AdapterQueue& queue, const Error& error);
  void run_training_piece();
  void run_steps();
  void trained(Operation& operation);
  Result<Operation::Progress> advance(Operation& operation);
  void read_adapter_memory();
  void update_gauges();
  void run_piece();

  // Files: engine_loop_files.cc.
  Copies* copies_of(const Operation& operation);
  bool send_to_files(Queues::iterator at);
  void drop_copy(Copies& copies);
  void accept(FileDone done);
  void run_files();
  void run_file(FileJob job);
  void run_pages();
  void run_page(PageWork work);
  bool send_to_pages(std::unique_ptr<PageJob>& job);

  engine::Engine& engine_;
  TracedTraining training_;
  TracedDecoding decoding_;
  const EngineLoopOptions options_;
  const Clock& clock_;
  std::atomic<Ticket> last_ticket_{0};
  std::atomic<int64_t> steps_{0};

  Inbox inbox_;

  // The engine thread's own.
  std::deque<InboxItem> taken_;
  Queues queues_;
  size_t queues_waiting_ = 0;  // number of queues that wait for an adapter
  size_t started_ = 0;         // number of operations that have run before, or are with the training scheduler
  // Queues whose first operation can run and is not with the training scheduler. Tenants take turns, so that the
  // hundreds of creations of one do not delay the step of another.
  FairQueue<std::string, std::string> turns_{1};
  FairQueue<std::string, std::string> step_turns_{1};  // those whose first operation is an optimizer step
  std::deque<std::string> stepped_;                    // queues whose step was made and is not answered yet
  Copies loads_{8};  // from before they are read until the engine has taken them, which may be after a pass of minutes
  Copies makes_{2};  // the same of new ones: one waits while the next is made
  Copies saves_{8};  // until they are written and the engine thread knows
  int steps_before_pass_ = 0;   // turns of step_turns_ since a pass or a step has been waiting
  bool lacked_memory_ = false;  // a queue may lack a turn
  std::unique_ptr<engine::Sampler> sampler_;
  TimeShare share_;       // of training and everything beside it, and of sampling
  TimeShare pass_share_;  // of passes and steps, and of other operations
  const OperationMetrics metrics_;
  PassRecorder passes_;
  StepBatch stepping_;
  const std::unique_ptr<engine::TrainScheduler> trainer_;
  AdapterPager pager_;
  SampleRequests samples_;
  EngineContext context_;
  engine::AdapterMemory adapter_memory_;
  uint64_t adapter_changes_ = 0;  // AdapterPager::Counts::changes of adapter_memory_

  EngineGauges gauges_;

  TurnQueue<FileJob> files_;
  TurnQueue<PageWork> pages_;
  std::atomic<bool> skip_files_{false};
  std::thread engine_thread_;
  std::thread file_thread_;
  std::thread page_thread_;
};

}  // namespace tuft::worker
