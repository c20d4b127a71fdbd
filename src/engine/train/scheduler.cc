#include "engine/train/scheduler.h"

#include <algorithm>
#include <new>
#include <set>
#include <utility>

#include "engine/train/fill.h"

namespace tuft::engine {
namespace {

class PackingScheduler final : public TrainScheduler {
 public:
  PackingScheduler(Engine& engine, const TrainerOptions& options, PassObserver* observer)
      : engine_(engine), options_(options), observer_(observer) {
    TUFT_CHECK(options.batch_tokens > 0, "TrainerOptions::batch_tokens must be positive");
  }

  Result<TrainRequestNumber> submit(TrainRequest request, Done done) override {
    const int rank = request.rank;
    std::string tenant = request.tenant.empty() ? request.adapter.str() : request.tenant;
    TUFT_ASSIGN(std::unique_ptr<TrainTask> task, TrainTask::make(engine_, std::move(request), options_));
    TrainLine& line = line_of(task->adapter());
    line.rank = rank;
    line.tenant = std::move(tenant);
    line.tasks.push_back({++last_number_, std::move(task), std::move(done)});
    return last_number_;
  }

  void cancel(const AdapterId& adapter, const Error& error) override {
    const auto found = find(adapter);
    if (found == lines_.end()) return;
    const std::unique_ptr<TrainLine> line = std::move(*found);
    lines_.erase(found);
    const TrainTask& oldest = *line->tasks.front().task;
    if (oldest.backward() && oldest.next() > 0) (void)engine_.restore_gradients(adapter);
    for (QueuedTask& queued : line->tasks) queued.done(error);
  }

  bool idle() const override { return lines_.empty(); }
  int waiting() const override {
    size_t count = 0;
    for (const auto& line : lines_) count += line->tasks.size();
    return static_cast<int>(count);
  }

  double deficit_max() const override {
    double most = 0;
    for (const auto& line : lines_) most = std::max(most, line->deficit);
    return most;
  }

  void step() override {
    if (idle()) return;
    PassPlan plan = fill_pass(lines_, options_.batch_tokens);
    bool taken = false;
    Status status = mark(plan);
    if (status.ok()) {
      const TrainPass pass = describe(plan);
      if (observer_ != nullptr) observer_->pass_begins(pass);
      status = run(plan, taken);
      if (observer_ != nullptr) observer_->pass_ended(pass, status);
    }
    if (status.ok()) {
      for (const Portion& portion : plan.portions) portion.queued().task->count_pass();
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

  TrainLines::iterator find(const AdapterId& adapter) {
    return std::find_if(lines_.begin(), lines_.end(), [&](const auto& line) { return line->adapter == adapter; });
  }
  TrainLine& line_of(const AdapterId& adapter) {
    const auto found = find(adapter);
    if (found != lines_.end()) return **found;
    lines_.push_back(std::make_unique<TrainLine>());
    lines_.back()->adapter = adapter;
    return *lines_.back();
  }

  TrainPass describe(const PassPlan& plan) {
    TrainPass pass;
    pass.number = ++passes_;
    pass.backward = plan.backward;
    pass.tokens = plan.tokens;
    std::set<const TrainLine*> lines;
    for (const Portion& portion : plan.portions) {
      lines.insert(portion.line);
      pass.shares.push_back({portion.queued().number, static_cast<int>(portion.end - portion.begin), portion.tokens});
    }
    pass.adapters = static_cast<int>(lines.size());
    return pass;
  }

  // Before the first pass of an adapter's oldest request. Later requests that are in the same pass end with it.
  Status mark(const PassPlan& plan) {
    if (!plan.backward) return {};
    for (const Portion& portion : plan.portions) {
      if (portion.task == 0 && portion.begin == 0) TUFT_TRY(engine_.mark_gradients(portion.line->adapter));
    }
    return {};
  }

  Status run(const PassPlan& plan, bool& taken) try {
    Pack pack;
    for (const Portion& portion : plan.portions) {
      for (size_t datum = portion.begin; datum < portion.end; ++datum) portion.queued().task->append(datum, pack);
    }
    std::vector<float> logprobs(pack.targets.size());
    std::vector<float> dloss(pack.targets.size());
    TUFT_TRY(engine_.forward(pack, plan.backward, logprobs));
    taken = true;
    apply_losses(plan, logprobs, dloss);
    return plan.backward ? engine_.backward(dloss) : Status();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted, "not enough memory for a training pass: send fewer or shorter datums",
                 "memory"};
  }

  static void apply_losses(const PassPlan& plan, std::span<const float> logprobs, std::span<float> dloss) {
    size_t at = 0;
    for (const Portion& portion : plan.portions) {
      TrainTask& task = *portion.queued().task;
      for (size_t datum = portion.begin; datum < portion.end; ++datum) {
        const size_t count = task.targets_of(datum);
        task.take(logprobs.subspan(at, count), dloss.subspan(at, count));
        at += count;
      }
    }
  }

  void settle_failure(const PassPlan& plan, Error error, bool taken) {
    if (plan.portions.size() == 1) {
      fail(plan.portions.front(), std::move(error), taken);
      return;
    }
    for (const Portion& portion : plan.portions) {
      QueuedTask& queued = portion.queued();
      queued.alone = true;
      // Where the engine gave no log-probabilities, what earlier passes gave stays good.
      if (!taken) continue;
      queued.task->rewind();
      // A later request of the adapter came after the oldest one: one mark is for both.
      if (plan.backward && portion.task == 0) (void)engine_.restore_gradients(portion.line->adapter);
    }
  }

  void fail(const Portion& portion, Error error, bool taken) {
    QueuedTask& queued = portion.queued();
    const bool touched = queued.task->backward() && (taken || portion.begin > 0);
    if (touched && !engine_.restore_gradients(portion.line->adapter).ok()) {
      (void)engine_.clear_gradients(portion.line->adapter);
      error.message +=
          "; the gradient of this model is lost - send every forward_backward since the last optim_step again";
    }
    finished_.push_back({std::move(queued.done), std::move(error)});
    portion.line->tasks.pop_front();  // alone in its pass, it is the oldest
  }

  // Last, since what is told may submit and cancel.
  void answer_finished() {
    for (const auto& line : lines_) {
      while (!line->tasks.empty() && line->tasks.front().task->done()) {
        QueuedTask& queued = line->tasks.front();
        finished_.push_back({std::move(queued.done), queued.task->output()});
        line->tasks.pop_front();
      }
    }
    lines_.erase(std::remove_if(lines_.begin(), lines_.end(), [](const auto& line) { return line->tasks.empty(); }),
                 lines_.end());
    for (Finished& finished : std::exchange(finished_, {})) finished.done(std::move(finished.result));
  }

  Engine& engine_;
  const TrainerOptions options_;
  PassObserver* const observer_;
  TrainLines lines_;
  std::vector<Finished> finished_;
  TrainRequestNumber last_number_ = 0;
  int64_t passes_ = 0;
};

}  // namespace

std::unique_ptr<TrainScheduler> make_train_scheduler(Engine& engine, const TrainerOptions& options,
                                                     PassObserver* observer) {
  return std::make_unique<PackingScheduler>(engine, options, observer);
}

Result<TrainOutput> train_alone(Engine& engine, TrainRequest request, const TrainerOptions& options) {
  PackingScheduler scheduler(engine, options, nullptr);
  Result<TrainOutput> output = internal_error("the request had no answer");
  TUFT_TRY(scheduler.submit(std::move(request), [&](Result<TrainOutput> result) { output = std::move(result); }));
  while (!scheduler.idle()) scheduler.step();
  return output;
}

}  // namespace tuft::engine
