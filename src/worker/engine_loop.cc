#include "worker/engine_loop.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "metrics/engine.h"
#include "telemetry/request_trace.h"
#include "worker/bucket_checkpoints.h"
#include "worker/without_exceptions.h"

namespace tuft::worker {
namespace {

// Optimizer steps are gathered before a pass, so that they are taken together, and their clients then send what makes
// the pass fuller. The pass waits for at most so many of them.
constexpr int kStepsInARowMax = 64;

// Other operations (creations, loads, saves) share the time with passes and steps, so that those of one user take no
// more of it than the passes of the others. Neither owes the other more than this.
constexpr double kPassShare = 0.5;
constexpr Nanos kPassDebtMax = kSecond / 2;

// The longest time for which the engine thread waits without looking again whether it has work.
constexpr Nanos kIdleWait = 3600 * kSecond;

// Its new adapter, or the page of its adapter, which is read and then dropped; and the page of an adapter that makes
// room for it.
constexpr size_t kPagesPerOperation = 3;

Error removed_error() {
  return {ErrorCode::kGone, "the model was unloaded before this operation's turn", "adapter_removed"};
}

Error sampler_removed() {
  return {ErrorCode::kGone, "the sampler was removed while it was sampling", "sampler_removed"};
}

EngineLoopOptions completed(EngineLoopOptions options, const engine::Engine& engine) {
  options.sampler.base_model = options.base_model;
  options.trainer.peak_flops = engine.assumed_peak_flops();
  return options;
}

void count_refusal(const std::string& base_model, const Error& error) {
  metrics::engine().scheduler_rejections.add(1, {{"base_model", base_model}, {"reason", error.reason}});
}

}  // namespace

EngineLoop::EngineLoop(engine::Engine& engine, EngineLoopOptions options, engine::TokenBytes token_bytes,
                       const Clock& clock)
    : engine_(engine),
      training_(engine, clock),
      decoding_(engine, clock),
      options_(completed(std::move(options), engine)),
      clock_(clock),
      inbox_(options_.operations_max),
      sampler_(engine::make_sampler(engine.model(), engine.adapters(), decoding_, options_.sampler,
                                    std::move(token_bytes), clock)),
      share_(options_.training_share, options_.share_debt_max),
      pass_share_(kPassShare, kPassDebtMax),
      metrics_(options_.base_model),
      passes_(training_, clock, metrics_, options_.trainer.batch_tokens),
      stepping_(training_, clock, metrics_),
      trainer_(engine::make_train_scheduler(engine.model(), engine.adapters(), training_, options_.trainer, &passes_,
                                            [this](int tasks, const auto& task) { decoding_.run_tasks(tasks, task); })),
      pager_(engine.model(), engine.adapters(), clock, options_.base_model, options_.pager,
             {[this](const engine::AdapterId& adapter) {
                return queues_.contains(adapter.str()) || samples_.runs_on(adapter);
              },
              [this](std::unique_ptr<PageJob>& job) { return send_to_pages(job); }}),
      samples_(*sampler_, pager_, [this](size_t count) { inbox_.answered(count); }),
      context_{engine_,
               pager_,
               clock,
               options_.base_model,
               metrics_,
               *trainer_,
               passes_,
               stepping_,
               options_.limits,
               options_.bucket,
               [this](const engine::AdapterId& adapter) { samples_.fail(adapter, sampler_removed()); },
               [this](Operation& operation) { trained(operation); }},
      gauges_(options_.base_model, options_.sampler.memory_bytes, clock, [this] { return inbox_.unanswered(); }),
      files_(options_.operations_max),
      pages_(kPagesPerOperation * options_.operations_max) {
  if (!options_.threads) return;
  engine_thread_ = std::thread([this] { run(); });
  file_thread_ = std::thread([this] { run_files(); });
  page_thread_ = std::thread([this] { run_pages(); });
}

EngineLoop::~EngineLoop() {
  stop();
}

void EngineLoop::post(std::unique_ptr<Operation> operation) {
  InboxItem item(std::move(operation));
  if (const auto refusal = inbox_.push(item)) {
    count_refusal(options_.base_model, *refusal);
    std::get<0>(item)->fail(*refusal);
  }
}

void EngineLoop::post_sample(Ticket ticket, engine::SampleRequest request, engine::Sampler::Done done) {
  InboxItem item(NewSample{ticket, std::move(request), std::move(done)});
  if (auto refusal = inbox_.push(item)) {
    count_refusal(options_.base_model, *refusal);
    std::get<NewSample>(item).done(std::move(*refusal));
  }
}

// A cancel for which there is no memory is dropped: the sample goes on to its end, and nobody reads it.
void EngineLoop::cancel_sample(Ticket ticket) try {
  InboxItem item(CancelSample{ticket});
  (void)inbox_.push(item);
} catch (const std::bad_alloc&) {
}

int EngineLoop::rank_of(const engine::AdapterId& adapter) const {
  const auto found = context_.ranks.find(adapter);
  return found == context_.ranks.end() ? 0 : found->second;
}

void EngineLoop::run() {
  telemetry::trace_set_thread_info("engine");
  update_gauges();
  while (run_once(true)) {
  }
}

bool EngineLoop::run_engine_step() {
  resume_queues();
  if (idle() && inbox_.empty()) return false;
  return run_once(false);
}

bool EngineLoop::idle() const {
  return !has_turns() && stepping_.empty() && trainer_->idle() && sampler_->idle() && !lacked_memory_;
}

// Returns false once the inbox is closed. `waits`: for work, if there is none.
bool EngineLoop::run_once(bool waits) {
  resume_queues();
  const bool nothing = idle();
  if (nothing) gauges_.work_ended(clock_.monotonic());
  // Room for an adapter that waits may come with time alone, because nobody uses another one.
  const Nanos longest = pager_.waits() ? kSecond : kIdleWait;
  inbox_.take(taken_, waits && nothing ? longest : 0);
  if (nothing) gauges_.work_arrived(clock_.monotonic());
  for (InboxItem& item : taken_) accept(std::move(item));
  taken_.clear();
  if (inbox_.is_closed()) return false;
  run_piece();
  update_gauges();
  return true;
}

void EngineLoop::run_piece() {
  const bool training = has_turns() || !stepping_.empty() || !trainer_->idle();
  if (!training && sampler_->idle()) return;
  const TimeShare::Turn turn = share_.next(training, !sampler_->idle());
  const Nanos begin = clock_.monotonic();
  if (turn == TimeShare::Turn::kFirst) {
    run_training_piece();
  } else {
    sampler_->step();
    gauges_.progressed(sampler_->last_step_end());
    ++steps_;
  }
  share_.spent(turn, clock_.monotonic() - begin);
}

void EngineLoop::accept(InboxItem item) {
  if (auto* operation = std::get_if<std::unique_ptr<Operation>>(&item)) {
    accept(std::move(*operation));
  } else if (auto* sample = std::get_if<NewSample>(&item)) {
    samples_.add(std::move(*sample));
  } else if (const auto* cancel = std::get_if<CancelSample>(&item)) {
    samples_.cancel(cancel->ticket);
  } else if (auto* page = std::get_if<std::unique_ptr<PageJob>>(&item)) {
    accept(std::move(*page));
  } else {
    accept(std::move(std::get<FileDone>(item)));
  }
}

void EngineLoop::accept(std::unique_ptr<Operation> operation) {
  const Status queued = without_exceptions([&]() -> Status {
    enqueue(operation);
    return {};
  });
  if (queued.ok()) return;
  inbox_.answered(1);
  operation->fail(queued.error());
}

// If it throws, the operation is still the caller's.
void EngineLoop::enqueue(std::unique_ptr<Operation>& operation) {
  const engine::AdapterId adapter(operation->queue());
  if (operation->needs_adapter()) pager_.looked_up(adapter);
  pager_.used(adapter);
  const bool ends = operation->ends_queue();
  const Error removed = removed_error();
  const auto at = queues_.try_emplace(adapter.str()).first;
  AdapterQueue& queue = at->second;
  try {
    queue.operations.push_back(std::move(operation));
  } catch (const std::bad_alloc&) {
    if (queue.operations.empty()) queues_.erase(at);
    throw;
  }
  if (ends) {
    fail_waiting(queue, removed);
    set_waits(queue, false);  // what ends it needs no adapter
    trainer_->cancel(adapter, removed);
  }
  if (!queue.waits) proceed(at);
}

// Fails the operations that have not begun, except the newest, to which the turn of the first one passes.
void EngineLoop::fail_waiting(AdapterQueue& queue, const Error& error) {
  const size_t begun = queue.training + (queue.begun ? 1 : 0);
  const auto first = queue.operations.begin() + static_cast<ptrdiff_t>(begun);
  const auto newest = queue.operations.end() - 1;
  for (auto waiting = first; waiting != newest; ++waiting) (*waiting)->fail(error);
  inbox_.answered(static_cast<size_t>(newest - first));
  queue.operations.erase(first, newest);
}

// Resumes, or fails, everything that waited for an adapter that came back from its page.
void EngineLoop::accept(std::unique_ptr<PageJob> job) {
  const auto arrival = pager_.finish(std::move(job));
  if (!arrival) return;
  if (!arrival->status.ok() && !pager_.exists(arrival->adapter)) context_.ranks.erase(arrival->adapter);
  const std::string& name = arrival->adapter.str();
  const auto queue = queues_.find(name);
  // Only a queue that waits has no turn. Another one goes on by itself, since an operation that needs no adapter came
  // meanwhile, or only samples waited.
  if (queue != queues_.end() && queue->second.waits) {
    set_waits(queue->second, false);
    if (arrival->status.ok()) {
      proceed(queue);
    } else {
      for (const auto& operation : queue->second.operations) operation->fail(arrival->status.error());
      inbox_.answered(queue->second.operations.size());
      queues_.erase(queue);
    }
  }
  samples_.adapter_arrived(*arrival);
}

Result<Operation::Progress> EngineLoop::advance(Operation& operation) {
  auto progress = without_exceptions([&]() -> Result<Operation::Progress> { return operation.advance(context_); });
  if (!progress.ok()) operation.fail(progress.error());
  return progress;
}

// Without memory for a turn, the queue goes on at the next round of the loop.
void EngineLoop::proceed(Queues::iterator at) try { proceed_or_throw(at); } catch (const std::bad_alloc&) {
  lacked_memory_ = true;
}

// Goes on with what waited for an adapter or for memory.
void EngineLoop::resume_queues() {
  const bool lacked = std::exchange(lacked_memory_, false);
  try {
    pager_.go_on();
    samples_.resume();
  } catch (const std::bad_alloc&) {
    lacked_memory_ = true;
  }
  if (!lacked) return;
  for (auto at = queues_.begin(); at != queues_.end();) {
    const auto next = std::next(at);
    if (!at->second.waits) proceed(at);
    at = next;
  }
}

void EngineLoop::proceed_or_throw(Queues::iterator at) {
  AdapterQueue& queue = at->second;
  auto& operations = queue.operations;
  const engine::AdapterId adapter(at->first);
  const bool begins = queue.training == 0 && !queue.begun && !queue.has_turn && !operations.empty();
  if (begins && operations.front()->needs_adapter() && pager_.exists(adapter) && !pager_.in_engine(adapter)) {
    pager_.bring_back(adapter, operations.front()->cause());
    return set_waits(queue, true);
  }
  while (queue.training < operations.size() && operations[queue.training]->trains()) {
    const auto progress = advance(*operations[queue.training]);
    if (progress.ok() && *progress == Operation::Progress::kTraining) {
      ++queue.training;
      ++started_;
      continue;
    }
    operations.erase(operations.begin() + static_cast<ptrdiff_t>(queue.training));
    inbox_.answered(1);
  }
  if (operations.empty()) {
    pager_.used(adapter);
    queues_.erase(at);
  } else if (queue.training == 0 && !queue.has_turn) {
    add_turn(queue, at->first);
    queue.has_turn = true;
  }
}

void EngineLoop::set_waits(AdapterQueue& queue, bool waits) {
  if (std::exchange(queue.waits, waits) == waits) return;
  waits ? ++queues_waiting_ : --queues_waiting_;
}

void EngineLoop::set_begun(AdapterQueue& queue, bool begun) {
  if (std::exchange(queue.begun, begun) == begun) return;
  begun ? ++started_ : --started_;
}

void EngineLoop::run_training_piece() {
  ++steps_;
  sampler_->pause();
  const bool passes_wait = !trainer_->idle() || !stepping_.empty();
  if (!passes_wait) steps_before_pass_ = 0;
  if (!stepped_.empty()) {
    const std::string name = std::move(stepped_.front());
    stepped_.pop_front();
    advance_queue(name);
  } else if (!step_turns_.empty() && steps_before_pass_ < kStepsInARowMax) {
    advance_queue(step_turns_.pop());
    ++steps_before_pass_;
  } else {
    const TimeShare::Turn turn = pass_share_.next(passes_wait, !turns_.empty());
    const Nanos begin = clock_.monotonic();
    turn == TimeShare::Turn::kFirst ? run_pass() : advance_queue(turns_.pop());
    pass_share_.spent(turn, clock_.monotonic() - begin);
  }
  read_adapter_memory();
  gauges_.progressed(clock_.monotonic());
}

void EngineLoop::read_adapter_memory() {
  adapter_memory_ = engine_.adapters().memory();
  adapter_changes_ = pager_.counts().changes;
}

void EngineLoop::run_pass() {
  if (!stepping_.empty()) {
    steps_before_pass_ = kStepsInARowMax;  // a pass that waits as well comes before further steps
    return run_steps();
  }
  steps_before_pass_ = 0;
  trainer_->step();
}

// The turn is that of the tenant whose operation is the first. If it throws, nothing has changed.
void EngineLoop::add_turn(const AdapterQueue& queue, std::string name) {
  const Operation& first = *queue.operations.front();
  (first.steps() ? step_turns_ : turns_).push(first.tenant(), 1, std::move(name));
}

// The answers of the steps go before all other work.
void EngineLoop::run_steps() {
  for (std::string& name : stepping_.run()) {
    AdapterQueue& queue = queues_.find(name)->second;
    try {
      stepped_.push_back(std::move(name));
    } catch (const std::bad_alloc&) {
      queue.has_turn = false;
      lacked_memory_ = true;
    }
  }
}

void EngineLoop::trained(Operation& operation) {
  const auto at = queues_.find(operation.queue());
  AdapterQueue& queue = at->second;
  (void)advance(operation);
  const auto found = std::find_if(queue.operations.begin(), queue.operations.end(),
                                  [&](const auto& held) { return held.get() == &operation; });
  TUFT_CHECK(found != queue.operations.end(), "a trained operation is in its queue");
  queue.operations.erase(found);
  --queue.training;
  --started_;
  inbox_.answered(1);
  proceed(at);
}

void EngineLoop::advance_queue(const std::string& name) {
  const auto at = queues_.find(name);
  AdapterQueue& queue = at->second;
  Operation& operation = *queue.operations.front();
  Copies* const copies = queue.begun ? copies_of(operation) : nullptr;
  const auto progress = advance(operation);
  set_begun(queue, progress.ok() && *progress != Operation::Progress::kDone);
  const bool goes_on = queue.begun && (*progress == Operation::Progress::kStepping || send_to_files(at));
  if (!goes_on) end_first(at);
  if (copies != nullptr) drop_copy(*copies);
}

void EngineLoop::end_first(Queues::iterator at) {
  at->second.operations.pop_front();
  at->second.has_turn = false;
  inbox_.answered(1);
  proceed(at);
}

void EngineLoop::update_gauges() {
  // Pages come and go without a piece of training, too. At each step of the sampler it would take too long.
  if (adapter_changes_ != pager_.counts().changes) read_adapter_memory();
  gauges_.update({.running = static_cast<size_t>(sampler_->active()) + started_,
                  .samples = sampler_->phases(),
                  .pager = pager_.counts(),
                  .kv = decoding_.kv_usage(),
                  .adapters = adapter_memory_,
                  .waiting_for_adapter = queues_waiting_ + samples_.held(),
                  .deficit_max = trainer_->deficit_max(),
                  .passes = training_.totals(),
                  .steps = decoding_.totals(),
                  .device = engine_.device_times(),
                  .peak_flops = engine_.peak_flops()});
}

void EngineLoop::stop() {
  if (!inbox_.close()) return;
  skip_files_ = true;
  if (options_.bucket != nullptr) options_.bucket->cancel();
  if (engine_thread_.joinable()) engine_thread_.join();
  files_.close();  // after the piece that was running: it may have had work for the other threads
  pages_.close();
  if (file_thread_.joinable()) file_thread_.join();
  if (page_thread_.joinable()) page_thread_.join();
  // No other thread is left, so this one may touch what they owned.
  std::deque<InboxItem> items;
  inbox_.take(items, 0);
  for (InboxItem& item : items) {
    if (auto* operation = std::get_if<std::unique_ptr<Operation>>(&item)) (*operation)->fail(stopping_error());
    if (auto* sample = std::get_if<NewSample>(&item)) sample->done(stopping_error());
  }
  for (auto& [name, queue] : queues_) {
    for (auto& operation : queue.operations) operation->fail(stopping_error());
  }
  queues_.clear();
  samples_.fail_all(stopping_error());
}

}  // namespace tuft::worker
