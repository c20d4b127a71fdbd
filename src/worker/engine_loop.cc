#include "worker/engine_loop.h"

#include <algorithm>
#include <new>
#include <utility>

#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/request_trace.h"

namespace tuft::worker {
namespace {

// What goes before passes (steps of optimizers, loads, saves) makes the next pass fuller. A pass waits for so many.
constexpr int kTurnsInARowMax = 64;

// Its own, an adapter that comes back for it, and one that makes room for that.
constexpr size_t kFileJobsPerOperation = 3;

Error removed_error() {
  return {ErrorCode::kGone, "the model was unloaded before this operation's turn", "adapter_removed"};
}

Error stopping_error() {
  return unavailable("the worker is stopping; try again later", "worker_stopping");
}

EngineLoopOptions labelled(EngineLoopOptions options) {
  options.sampler.base_model = options.base_model;
  return options;
}

void count_refusal(const std::string& base_model, const Error& error) {
  telemetry::get_metrics().scheduler_rejections.add(1, {{"base_model", base_model}, {"reason", error.reason}});
}

// What a step of ours lets through is a lack of memory or an error of ours; both are told to the caller.
template <typename Action>
Result<Operation::Progress> without_exceptions(Action&& action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted, "the worker ran out of memory for this request; send a smaller one",
                 "out_of_memory"};
  } catch (const std::exception& exception) {
    telemetry::log_error("worker.exception", exception.what());
    return internal_error("the worker failed on this request", "exception");
  }
}

}  // namespace

EngineLoop::EngineLoop(engine::Engine& engine, EngineLoopOptions options, engine::TokenBytes token_bytes,
                       const Clock& clock)
    : engine_(make_traced_engine(engine, clock)),
      options_(labelled(std::move(options))),
      clock_(clock),
      sampler_(engine::make_sampler(*engine_, options_.sampler, std::move(token_bytes), clock)),
      share_(options_.training_share, options_.share_debt_max),
      metrics_(options_.base_model),
      passes_(*engine_, clock, metrics_, options_.trainer.batch_tokens),
      stepping_(*engine_, clock, metrics_),
      trainer_(engine::make_train_scheduler(*engine_, options_.trainer, &passes_)),
      pager_(*engine_, clock, options_.base_model, options_.pager,
             {[this](const engine::AdapterId& adapter) { return at_work(adapter); },
              [this](std::unique_ptr<PageJob>& job) {
                if (files_.size() >= (kFileJobsPerOperation - 1) * options_.operations_max) return false;
                return files_.try_push({{}, nullptr, std::move(job)});
              }}),
      bench_{*engine_,
             pager_,
             clock,
             options_.base_model,
             metrics_,
             *trainer_,
             passes_,
             stepping_,
             options_.limits,
             [this](const engine::AdapterId& adapter) { cancel_samples_of(adapter); },
             [this](Operation& operation) { trained(operation); }},
      gauges_(options_.base_model, options_.sampler.memory_bytes, clock, [this] { return accepted(); }),
      files_(kFileJobsPerOperation * options_.operations_max) {
  engine_thread_ = std::thread([this] { run(); });
  file_thread_ = std::thread([this] { run_files(); });
}

EngineLoop::~EngineLoop() {
  stop();
}

size_t EngineLoop::accepted() const {
  MutexLock lock(mutex_);
  return unanswered_;
}

std::optional<Error> EngineLoop::push(Item& item, bool counted) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return stopping_error();
    if (counted && unanswered_ >= options_.operations_max) {
      return Error{ErrorCode::kResourceExhausted,
                   "the worker has " + std::to_string(options_.operations_max) + " calls waiting; try again later",
                   "worker_queue_full"};
    }
    if (counted) ++unanswered_;
    inbox_.push_back(std::move(item));
  }
  arrived_.notify_one();
  return std::nullopt;
}

std::deque<EngineLoop::Item> EngineLoop::take(bool wait) {
  MutexLock lock(mutex_);
  while (wait && inbox_.empty() && !stopping_) arrived_.wait(mutex_);
  return std::exchange(inbox_, {});
}

void EngineLoop::finished(int count) {
  MutexLock lock(mutex_);
  unanswered_ -= static_cast<size_t>(count);
}

void EngineLoop::post(std::unique_ptr<Operation> operation) {
  Item item(std::move(operation));
  if (const auto refusal = push(item, true)) {
    count_refusal(options_.base_model, *refusal);
    std::get<0>(item)->fail(*refusal);
  }
}

void EngineLoop::post_sample(Ticket ticket, engine::SampleRequest request, engine::Sampler::Done done) {
  Item item(NewSample{ticket, std::move(request), std::move(done)});
  if (auto refusal = push(item, true)) {
    count_refusal(options_.base_model, *refusal);
    std::get<NewSample>(item).done(std::move(*refusal));
  }
}

void EngineLoop::cancel_sample(Ticket ticket) {
  Item item(CancelSample{ticket});
  (void)push(item, false);
}

int EngineLoop::rank_of(const engine::AdapterId& adapter) const {
  const auto found = bench_.ranks.find(adapter);
  return found == bench_.ranks.end() ? 0 : found->second;
}

void EngineLoop::run() {
  telemetry::trace_set_thread_info("engine");
  publish();
  for (;;) {
    pager_.go_on();
    const bool idle = turns_.empty() && stepping_.empty() && trainer_->idle() && sampler_->idle();
    if (idle) gauges_.work_ended(clock_.monotonic());
    std::deque<Item> items = take(idle);
    if (idle) gauges_.work_arrived(clock_.monotonic());
    for (Item& item : items) accept(std::move(item));
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
    run_piece();
    publish();
  }
}

void EngineLoop::run_piece() {
  const bool training = !turns_.empty() || !stepping_.empty() || !trainer_->idle();
  if (!training && sampler_->idle()) return;
  const TimeShare::Turn turn = share_.next(training, !sampler_->idle());
  const Nanos begin = clock_.monotonic();
  if (turn == TimeShare::Turn::kTraining) {
    run_training_piece();
  } else {
    sampler_->step();
    gauges_.progressed(sampler_->last_step_end());
    ++steps_;
  }
  share_.spent(turn, clock_.monotonic() - begin);
}

void EngineLoop::accept(Item item) {
  if (auto* operation = std::get_if<std::unique_ptr<Operation>>(&item)) {
    accept(std::move(*operation));
  } else if (auto* sample = std::get_if<NewSample>(&item)) {
    accept(std::move(*sample));
  } else if (const auto* cancel = std::get_if<CancelSample>(&item)) {
    accept(*cancel);
  } else if (auto* page = std::get_if<std::unique_ptr<PageJob>>(&item)) {
    accept(std::move(*page));
  } else {
    turns_.push_back(std::get<FileDone>(item).lane);
  }
}

void EngineLoop::accept(std::unique_ptr<Operation> operation) {
  const std::string name = operation->lane();
  if (operation->needs_adapter()) pager_.looked_up(engine::AdapterId(name));
  pager_.used(engine::AdapterId(name));
  Lane& lane = lanes_[name];
  const bool ends = operation->ends_lane();
  if (ends) {
    fail_waiting(lane);
    set_waits(lane, false);  // what ends it needs no adapter
  }
  lane.operations.push_back(std::move(operation));
  if (ends) trainer_->cancel(engine::AdapterId(name), removed_error());
  if (!lane.waits) proceed(name);
}

// Of what has not begun. The first one's turn is then that of whatever comes next.
void EngineLoop::fail_waiting(Lane& lane) {
  const size_t begun = lane.training + (lane.begun ? 1 : 0);
  const auto first = lane.operations.begin() + static_cast<ptrdiff_t>(begun);
  for (auto waiting = first; waiting != lane.operations.end(); ++waiting) (*waiting)->fail(removed_error());
  finished(static_cast<int>(lane.operations.end() - first));
  lane.operations.erase(first, lane.operations.end());
}

void EngineLoop::accept(NewSample sample) {
  const std::optional<engine::AdapterId> adapter = sample.request.adapter;
  if (adapter) pager_.looked_up(*adapter);
  if (!adapter || !pager_.exists(*adapter) || pager_.in_engine(*adapter)) return start_sample(std::move(sample));
  pager_.used(*adapter);
  pager_.bring_back(*adapter, sample.request.trace);
  held_[*adapter].push_back(std::move(sample));
}

void EngineLoop::accept(const CancelSample& cancel) {
  const auto found = samples_.find(cancel.ticket);
  if (found != samples_.end()) return sampler_->cancel(found->second.number);
  for (auto& [adapter, samples] : held_) {
    const auto held =
        std::find_if(samples.begin(), samples.end(), [&](const NewSample& one) { return one.ticket == cancel.ticket; });
    if (held == samples.end()) continue;
    NewSample sample = std::move(*held);
    samples.erase(held);
    if (samples.empty()) held_.erase(adapter);
    finished(1);
    return sample.done(Error{ErrorCode::kCancelled, "the sample request was cancelled", "cancelled"});
  }
}

// Of an adapter that came back: goes on with all that waited for it, or fails it.
void EngineLoop::accept(std::unique_ptr<PageJob> job) {
  const auto arrival = pager_.finish(std::move(job));
  if (!arrival) return;
  const std::string& name = arrival->adapter.str();
  auto held = held_.extract(arrival->adapter);
  const auto lane = lanes_.find(name);
  if (lane != lanes_.end()) set_waits(lane->second, false);
  if (!arrival->status.ok()) {
    if (!pager_.exists(arrival->adapter)) bench_.ranks.erase(arrival->adapter);
    if (lane != lanes_.end()) {
      for (const auto& operation : lane->second.operations) operation->fail(arrival->status.error());
      finished(static_cast<int>(lane->second.operations.size()));
      lanes_.erase(lane);
    }
  } else if (lane != lanes_.end()) {
    proceed(name);
  }
  if (held.empty()) return;
  for (NewSample& sample : held.mapped()) {
    if (arrival->status.ok()) {
      start_sample(std::move(sample));
    } else {
      finished(1);
      sample.done(arrival->status.error());
    }
  }
}

bool EngineLoop::at_work(const engine::AdapterId& adapter) const {
  return lanes_.contains(adapter.str()) || sampling_.contains(adapter);
}

void EngineLoop::start_sample(NewSample sample) {
  const Ticket ticket = sample.ticket;
  ActiveSample& active = samples_[ticket];
  active.adapter = sample.request.adapter;
  if (active.adapter) {
    ++sampling_[*active.adapter];
    pager_.used(*active.adapter);
  }
  auto number = sampler_->submit(std::move(sample.request),
                                 [this, ticket, done = sample.done](Result<engine::SampleResult> result) {
                                   const auto node = take_sample(ticket);
                                   finished(1);
                                   if (!node.empty() && node.mapped().instead) result = *node.mapped().instead;
                                   done(std::move(result));
                                 });
  if (number.ok()) {
    active.number = *number;
    return;
  }
  (void)take_sample(ticket);
  finished(1);
  sample.done(std::move(number).error());
}

std::map<EngineLoop::Ticket, EngineLoop::ActiveSample>::node_type EngineLoop::take_sample(Ticket ticket) {
  auto node = samples_.extract(ticket);
  if (node.empty() || !node.mapped().adapter) return node;
  const auto count = sampling_.find(*node.mapped().adapter);
  if (--count->second == 0) sampling_.erase(count);
  return node;
}

void EngineLoop::cancel_samples_of(const engine::AdapterId& adapter) {
  const Error removed{ErrorCode::kGone, "the sampler was removed while it was sampling", "sampler_removed"};
  std::vector<engine::Sampler::RequestNumber> numbers;
  for (auto& [ticket, sample] : samples_) {
    if (sample.adapter != adapter) continue;
    sample.instead = removed;
    numbers.push_back(sample.number);
  }
  for (const auto number : numbers) sampler_->cancel(number);
  auto held = held_.extract(adapter);
  if (held.empty()) return;
  finished(static_cast<int>(held.mapped().size()));
  for (const NewSample& sample : held.mapped()) sample.done(removed);
}

Result<Operation::Progress> EngineLoop::advance(Operation& operation) {
  auto progress = without_exceptions([&]() -> Result<Operation::Progress> { return operation.advance(bench_); });
  if (!progress.ok()) operation.fail(progress.error());
  return progress;
}

void EngineLoop::proceed(const std::string& name) {
  Lane& lane = lanes_[name];
  auto& operations = lane.operations;
  const engine::AdapterId adapter(name);
  const bool begins = lane.training == 0 && !lane.has_turn && !operations.empty();
  if (begins && operations.front()->needs_adapter() && pager_.exists(adapter) && !pager_.in_engine(adapter)) {
    set_waits(lane, true);
    return pager_.bring_back(adapter, operations.front()->cause());
  }
  while (lane.training < operations.size() && operations[lane.training]->trains()) {
    const auto progress = advance(*operations[lane.training]);
    if (progress.ok() && *progress == Operation::Progress::kTraining) {
      ++lane.training;
      continue;
    }
    operations.erase(operations.begin() + static_cast<ptrdiff_t>(lane.training));
    finished(1);
  }
  if (operations.empty()) {
    lanes_.erase(name);
  } else if (lane.training == 0 && !lane.has_turn) {
    lane.has_turn = true;
    turns_.push_back(name);
  }
}

void EngineLoop::set_waits(Lane& lane, bool waits) {
  if (std::exchange(lane.waits, waits) == waits) return;
  waits ? ++lanes_waiting_ : --lanes_waiting_;
}

void EngineLoop::run_training_piece() {
  ++steps_;
  sampler_->pause();
  const bool others_wait = !trainer_->idle() || !stepping_.empty();
  if (!turns_.empty() && (!others_wait || turns_in_a_row_ < kTurnsInARowMax)) {
    ++turns_in_a_row_;
    advance_next_lane();
  } else if (!stepping_.empty()) {
    take_steps();
  } else {
    turns_in_a_row_ = 0;
    trainer_->step();
  }
  adapter_memory_ = engine_->adapter_memory();
  gauges_.progressed(clock_.monotonic());
}

void EngineLoop::trained(Operation& operation) {
  const std::string name = operation.lane();
  (void)advance(operation);
  Lane& lane = lanes_[name];
  const auto found = std::find_if(lane.operations.begin(), lane.operations.end(),
                                  [&](const auto& held) { return held.get() == &operation; });
  TUFT_CHECK(found != lane.operations.end(), "what was trained is in its lane");
  lane.operations.erase(found);
  --lane.training;
  finished(1);
  proceed(name);
}

// Their answers go before all else.
void EngineLoop::take_steps() {
  const std::vector<std::string> lanes = stepping_.run();
  turns_.insert(turns_.begin(), lanes.begin(), lanes.end());
  turns_in_a_row_ = 0;
}

void EngineLoop::advance_next_lane() {
  const std::string name = std::move(turns_.front());
  turns_.pop_front();
  Lane& lane = lanes_[name];
  Operation& operation = *lane.operations.front();
  const auto progress = advance(operation);
  lane.begun = progress.ok() && *progress != Operation::Progress::kDone;
  if (progress.ok() && *progress == Operation::Progress::kStepping) return;
  if (progress.ok() && *progress == Operation::Progress::kFile) {
    // One entry a lane, and no more lanes than operations_max.
    TUFT_CHECK(files_.try_push({name, &operation, nullptr}), "the file queue holds an entry for every operation");
    return;
  }
  lane.operations.pop_front();
  lane.has_turn = false;
  finished(1);
  proceed(name);
}

void EngineLoop::run_files() {
  while (auto job = files_.pop()) {
    if (skip_files_) continue;
    if (job->page != nullptr) {
      job->page->run();
      Item item(std::move(job->page));
      (void)push(item, false);
      continue;
    }
    Operation& operation = *job->operation;
    const auto done = without_exceptions([&]() -> Result<Operation::Progress> {
      operation.run_file();
      return Operation::Progress::kDone;
    });
    if (!done.ok()) operation.file_failed(done.error());
    Item item(FileDone{job->lane});
    (void)push(item, false);
  }
}

void EngineLoop::publish() {
  gauges_.publish({.running = static_cast<size_t>(sampler_->active()) + lanes_.size(),
                   .pager = pager_.counts(),
                   .kv = engine_->kv_usage(),
                   .adapters = adapter_memory_,
                   .waiting_for_adapter = waiting_for_adapter(),
                   .deficit_max = trainer_->deficit_max(),
                   .passes = engine_->totals(),
                   .steps = engine_->step_totals(),
                   .device = engine_->device_times(),
                   .peak_flops = engine_->peak_flops()});
}

// Those of a run wait one behind the other: they count as one.
size_t EngineLoop::waiting_for_adapter() const {
  size_t count = lanes_waiting_;
  for (const auto& [adapter, samples] : held_) count += samples.size();
  return count;
}

void EngineLoop::stop() {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  arrived_.notify_all();
  skip_files_ = true;
  engine_thread_.join();
  files_.close();  // after the piece that was running: it may have had work for the file thread
  file_thread_.join();
  // No thread is left: what they owned is this one's now.
  for (Item& item : take(false)) {
    if (auto* operation = std::get_if<std::unique_ptr<Operation>>(&item)) (*operation)->fail(stopping_error());
    if (auto* sample = std::get_if<NewSample>(&item)) sample->done(stopping_error());
  }
  for (auto& [name, lane] : lanes_) {
    for (auto& operation : lane.operations) operation->fail(stopping_error());
  }
  lanes_.clear();
  for (auto& [adapter, samples] : held_) {
    for (const NewSample& sample : samples) sample.done(stopping_error());
  }
  held_.clear();
  std::vector<engine::Sampler::RequestNumber> numbers;
  for (auto& [ticket, sample] : samples_) {
    sample.instead = stopping_error();
    numbers.push_back(sample.number);
  }
  for (const auto number : numbers) sampler_->cancel(number);
}

}  // namespace tuft::worker
