#include "engine/train/scheduler.h"

#include <algorithm>
#include <new>
#include <set>
#include <utility>

#include "engine/train/custom_losses.h"
#include "engine/train/pass_planner.h"

namespace tuft::engine {
namespace {

class PackingScheduler final : public TrainScheduler {
 public:
  PackingScheduler(const ModelSpec& model, AdapterStore& adapters, TrainingEngine& engine,
                   const TrainerOptions& options, PassObserver* observer, TaskRunner runner)
      : model_(model),
        adapters_(adapters),
        engine_(engine),
        options_(options),
        observer_(observer),
        runner_(std::move(runner)) {
    TUFT_CHECK(options.batch_tokens > 0, "TrainerOptions::batch_tokens must be positive");
  }

  Result<TrainRequestNumber> submit(TrainRequest request, Done done) override {
    const int rank = request.rank;
    std::string tenant = request.tenant.empty() ? request.adapter.str() : request.tenant;
    TUFT_ASSIGN(std::unique_ptr<TrainTask> task, TrainTask::make(model_, adapters_, std::move(request), options_));
    finished_.reserve(static_cast<size_t>(waiting()) + 1);
    const auto found = find(task->adapter());
    if (found == queues_.end()) return add_queue(rank, std::move(tenant), std::move(task), std::move(done));
    AdapterQueue& queue = **found;
    queue.tasks.push_back({last_number_ + 1, std::move(task), std::move(done)});
    queue.rank = rank;
    queue.tenant = std::move(tenant);
    return ++last_number_;
  }

  void cancel(const AdapterId& adapter, const Error& error) override {
    const auto found = find(adapter);
    if (found == queues_.end()) return;
    const std::unique_ptr<AdapterQueue> queue = std::move(*found);
    queues_.erase(found);
    keep_debt(*queue);
    const TrainTask& oldest = *queue->tasks.front().task;
    if (oldest.backward() && oldest.next() > 0) (void)adapters_.restore_gradients(adapter);
    for (QueuedTask& queued : queue->tasks) queued.done(copy_of(error));
  }

  bool idle() const override { return queues_.empty(); }
  int waiting() const override {
    size_t count = 0;
    for (const auto& queue : queues_) count += queue->tasks.size();
    return static_cast<int>(count);
  }

  double deficit_max() const override {
    double most = 0;
    for (const auto& queue : queues_) most = std::max(most, queue->deficit);
    return most;
  }

  void step() override {
    if (idle()) return;
    PassPlan plan;
    bool taken = false;
    Status status;
    try {
      plan = plan_pass(queues_, debts_, options_.batch_tokens);
      status = run_pass(plan, taken);
    } catch (const std::bad_alloc&) {
      status = out_of_memory();
    }
    if (status.ok()) {
      for (const Slice& slice : plan.slices) slice.queued().task->count_pass();
      take_back_failed(plan);
    } else if (plan.slices.empty()) {
      const size_t next = queues_.front()->tasks.front().task->next();
      fail({queues_.front().get(), 0, next, next, 0}, std::move(status).error(), taken);
    } else {
      settle_failure(plan, std::move(status).error(), taken);
    }
    answer_finished();
  }

 private:
  struct Finished {
    Done done;
    Result<TrainOutput> result;
  };

  AdapterQueues::iterator find(const AdapterId& adapter) {
    return std::find_if(queues_.begin(), queues_.end(), [&](const auto& queue) { return queue->adapter == adapter; });
  }
  TrainRequestNumber add_queue(int rank, std::string tenant, std::unique_ptr<TrainTask> task, Done done) {
    if (queues_.empty()) debts_.clear();  // nobody waited
    debts_.reserve(debts_.size() + queues_.size() + 1);
    auto queue = std::make_unique<AdapterQueue>();
    queue->adapter = task->adapter();
    queue->rank = rank;
    queue->tenant = std::move(tenant);
    queue->tasks.push_back({last_number_ + 1, std::move(task), std::move(done)});
    queues_.push_back(std::move(queue));
    take_debt(*queues_.back());
    return ++last_number_;
  }

  // Notes what a queue owes that is about to be removed. add_queue() has reserved the memory.
  void keep_debt(AdapterQueue& queue) {
    if (queue.deficit >= 0) return;
    debts_.push_back({std::move(queue.adapter), std::move(queue.tenant), queue.deficit});
  }
  void take_debt(AdapterQueue& queue) {
    const auto debt = std::find_if(debts_.begin(), debts_.end(),
                                   [&](const AdapterDebt& one) { return one.adapter == queue.adapter; });
    if (debt == debts_.end()) return;
    queue.deficit = debt->credit;
    debts_.erase(debt);
  }

  Status run_pass(const PassPlan& plan, bool& taken) {
    TUFT_TRY(mark(plan));
    const TrainPass pass = describe(plan);
    if (observer_ != nullptr) observer_->pass_begins(pass);
    Status status = run(plan, taken);
    if (observer_ != nullptr) observer_->pass_ended(pass, status);
    return status;
  }

  TrainPass describe(const PassPlan& plan) {
    TrainPass pass;
    pass.number = ++passes_;
    pass.backward = plan.backward;
    pass.tokens = plan.tokens;
    std::set<const AdapterQueue*> queues;
    for (const Slice& slice : plan.slices) {
      queues.insert(slice.queue);
      pass.shares.push_back({slice.queued().number, static_cast<int>(slice.end - slice.begin), slice.tokens});
    }
    pass.adapters = static_cast<int>(queues.size());
    return pass;
  }

  // Marks before the first pass of an adapter's oldest request. Later requests in the same pass end with it.
  Status mark(const PassPlan& plan) {
    if (!plan.backward) return {};
    for (const Slice& slice : plan.slices) {
      if (slice.task == 0 && slice.begin == 0) TUFT_TRY(adapters_.mark_gradients(slice.queue->adapter));
    }
    return {};
  }

  Status run(const PassPlan& plan, bool& taken) try {
    Pack pack;
    for (const Slice& slice : plan.slices) {
      for (size_t datum = slice.begin; datum < slice.end; ++datum) slice.queued().task->append(datum, pack);
    }
    std::vector<float> logprobs(pack.targets.size());
    std::vector<float> dloss(pack.targets.size());
    TUFT_TRY(engine_.forward(pack, plan.backward, logprobs));
    taken = true;
    apply_losses(plan, logprobs, dloss);
    return plan.backward ? engine_.backward(dloss) : Status();
  } catch (const std::bad_alloc&) {
    engine_.drop_pass();  // the losses found no memory: nothing else frees what forward() retained before the next pass
    return Error{ErrorCode::kResourceExhausted, "not enough memory for a training pass: send fewer or shorter datums",
                 "memory"};
  }

  void apply_losses(const PassPlan& plan, std::span<const float> logprobs, std::span<float> dloss) {
    std::vector<Result<loss_graph::Outcome>> outcomes = evaluate_custom_losses(plan, logprobs, runner_);
    auto outcome = outcomes.begin();
    size_t at = 0;
    for (const Slice& slice : plan.slices) {
      TrainTask& task = *slice.queued().task;
      const size_t begin = at;
      for (size_t datum = slice.begin; datum < slice.end; ++datum) {
        const size_t count = task.targets_of(datum);
        if (task.has_custom_loss()) {
          task.take(logprobs.subspan(at, count), std::move(*outcome++), dloss.subspan(at, count));
        } else {
          task.take(logprobs.subspan(at, count), dloss.subspan(at, count));
        }
        at += count;
      }
      if (task.failed())
        std::fill(dloss.begin() + static_cast<std::ptrdiff_t>(begin), dloss.begin() + static_cast<std::ptrdiff_t>(at),
                  0.0F);
    }
  }

  // The gradient of a request that failed in this pass is 0, but that of its earlier passes is not, and an adapter with
  // a gradient of 0 would count a step. The mark lies before the oldest request of the adapter, so those that ran
  // behind it in this pass are taken back with it and run again.
  void take_back_failed(const PassPlan& plan) {
    for (const Slice& failed : plan.slices) {
      if (!plan.backward || failed.task != 0 || !failed.queued().task->failed()) continue;
      if (!adapters_.restore_gradients(failed.queue->adapter).ok()) {
        (void)adapters_.clear_gradients(failed.queue->adapter);
        failed.queued().task->note_lost_gradient();
      }
      for (const Slice& other : plan.slices) {
        if (other.queue == failed.queue && !other.queued().task->failed()) other.queued().task->rewind();
      }
    }
  }

  void settle_failure(const PassPlan& plan, Error error, bool taken) {
    if (plan.slices.size() == 1) {
      fail(plan.slices.front(), std::move(error), taken);
      return;
    }
    for (const Slice& slice : plan.slices) {
      QueuedTask& queued = slice.queued();
      queued.alone = true;
      // If the engine returned no log-probabilities, the results of earlier passes stay valid.
      if (!taken) continue;
      queued.task->rewind();
      // One mark covers all requests of the adapter in this pass, because the oldest one began first.
      if (plan.backward && slice.task == 0) (void)adapters_.restore_gradients(slice.queue->adapter);
    }
  }

  void fail(const Slice& slice, Error error, bool taken) {
    QueuedTask& queued = slice.queued();
    const bool touched = queued.task->backward() && (taken || slice.begin > 0);
    if (touched && !adapters_.restore_gradients(slice.queue->adapter).ok()) {
      (void)adapters_.clear_gradients(slice.queue->adapter);
      tell_lost_gradient(error);
    }
    finished_.push_back({std::move(queued.done), std::move(error)});
    slice.queue->tasks.pop_front();  // alone in its pass, it is the oldest
  }

  // Answers come last, because the callbacks may submit and cancel. submit() has reserved the memory.
  void answer_finished() {
    for (const auto& queue : queues_) {
      while (!queue->tasks.empty() && queue->tasks.front().task->done()) {
        QueuedTask& queued = queue->tasks.front();
        finished_.push_back({std::move(queued.done), queued.task->result()});
        queue->tasks.pop_front();
      }
      if (queue->tasks.empty()) keep_debt(*queue);
    }
    queues_.erase(
        std::remove_if(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->tasks.empty(); }),
        queues_.end());
    for (size_t i = 0; i < finished_.size(); ++i) {
      Finished finished = std::move(finished_[i]);  // submit() may move the others
      finished.done(std::move(finished.result));
    }
    finished_.clear();
  }

  const ModelSpec& model_;
  AdapterStore& adapters_;
  TrainingEngine& engine_;
  const TrainerOptions options_;
  PassObserver* const observer_;
  const TaskRunner runner_;
  AdapterQueues queues_;
  AdapterDebts debts_;              // has room for those of all queues
  std::vector<Finished> finished_;  // has room for all requests
  TrainRequestNumber last_number_ = 0;
  int64_t passes_ = 0;
};

}  // namespace

std::unique_ptr<TrainScheduler> make_train_scheduler(const ModelSpec& model, AdapterStore& adapters,
                                                     TrainingEngine& engine, const TrainerOptions& options,
                                                     PassObserver* observer, TaskRunner runner) {
  return std::make_unique<PackingScheduler>(model, adapters, engine, options, observer, std::move(runner));
}

Result<TrainOutput> train_alone(Engine& engine, TrainRequest request, const TrainerOptions& options) {
  PackingScheduler scheduler(engine.model(), engine.adapters(), engine.training(), options, nullptr, {});
  Result<TrainOutput> output = internal_error("the request had no answer");
  TUFT_TRY(scheduler.submit(std::move(request), [&](Result<TrainOutput> result) { output = std::move(result); }));
  while (!scheduler.idle()) scheduler.step();
  return output;
}

}  // namespace tuft::engine
