#include "engine/train/pass_planner.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace tuft::engine {
namespace {

constexpr int kRoundsPerPass = 8;  // the quantum of a tenant is the budget divided by it

class PassPlanner {
 public:
  PassPlanner(AdapterQueues& queues, int batch_tokens) : queues_(queues), budget_(batch_tokens) {
    std::unordered_map<std::string_view, int> queues_of;  // by tenant
    for (const auto& queue : queues_) ++queues_of[queue->tenant];
    const double quantum = std::max(1, batch_tokens / kRoundsPerPass);
    for (const auto& queue : queues_) {
      progress_.push_back({queue->tasks.front().task->next(), quantum / queues_of[queue->tenant]});
    }
    plan_.backward = queues_.front()->tasks.front().task->backward();
  }

  PassPlan plan() {
    for (size_t i = 0; i < queues_.size(); ++i) {
      // Only once per tenant, so that many adapters do not give a tenant more than its share.
      if (queues_[i]->passed_over < kPassedOverMax || went_before_.contains(queues_[i]->tenant)) continue;
      const auto unit = next_unit(i);
      if (!unit) continue;
      take(i, *unit);
      went_before_.insert(queues_[i]->tenant);
    }
    while (run_rounds()) {
    }
    settle();
    return std::move(plan_);
  }

 private:
  // How much of a queue this pass has taken.
  struct Progress {
    size_t datum = 0;
    double quantum = 0;
    size_t task = 0;
    std::optional<size_t> slice = {};  // the slice of that task
    bool served = false;
  };
  // The smallest part of a queue that is taken at once.
  struct Unit {
    size_t end = 0;
    int64_t tokens = 0;
    int64_t cost = 0;
  };

  // Returns the credit of a queue per round, in tokens. The adapters of a tenant divide the credit of one adapter.
  double quantum_of(size_t index) const { return progress_[index].quantum; }

  bool wants_this_kind(size_t index) const {
    const AdapterQueue& queue = *queues_[index];
    const Progress& progress = progress_[index];
    return progress.task < queue.tasks.size() && queue.tasks[progress.task].task->backward() == plan_.backward;
  }

  // Returns the next unit of the queue, or nullopt if it does not fit into this pass.
  std::optional<Unit> next_unit(size_t index) const {
    const AdapterQueue& queue = *queues_[index];
    const Progress& progress = progress_[index];
    if (!wants_this_kind(index)) return std::nullopt;
    const QueuedTask& queued = queue.tasks[progress.task];
    const TrainTask& task = *queued.task;
    const bool whole = progress.task > 0;
    const Unit unit{whole ? task.size() : progress.datum + 1, whole ? task.tokens() : task.tokens_of(progress.datum),
                    whole ? task.cost() : task.cost_of(progress.datum)};
    if (plan_.slices.empty()) return unit;
    if ((queued.alone || closed_) && !progress.slice) return std::nullopt;
    if (plan_.cost + unit.cost > budget_) return std::nullopt;
    return unit;
  }

  void take(size_t index, const Unit& unit) {
    AdapterQueue& queue = *queues_[index];
    Progress& progress = progress_[index];
    const QueuedTask& queued = queue.tasks[progress.task];
    if (!progress.slice) {
      progress.slice = plan_.slices.size();
      plan_.slices.push_back({&queue, progress.task, progress.datum, progress.datum, 0});
    }
    Slice& slice = plan_.slices[*progress.slice];
    slice.end = unit.end;
    slice.tokens += static_cast<int>(unit.tokens);
    plan_.tokens += static_cast<int>(unit.tokens);
    plan_.cost += unit.cost;
    queue.deficit -= static_cast<double>(unit.cost);
    closed_ = queued.alone;
    progress.served = true;
    progress.datum = unit.end;
    if (progress.datum < queued.task->size()) return;
    progress.datum = 0;
    ++progress.task;
    progress.slice.reset();
  }

  // Returns the number of rounds until some queue can pay for its next unit; 0: nothing fits.
  double rounds_until_next() const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    double fewest = kNone;
    for (size_t i = 0; i < queues_.size(); ++i) {
      const auto unit = next_unit(i);
      if (!unit) continue;
      const double missing = static_cast<double>(unit->cost) - queues_[i]->deficit;
      fewest = std::min(fewest, std::max(1.0, std::ceil(missing / quantum_of(i))));
    }
    return fewest == kNone ? 0.0 : fewest;
  }

  // Runs the rounds until some queue takes a unit. Returns false if nothing fits.
  bool run_rounds() {
    const double rounds = rounds_until_next();
    for (size_t i = 0; i < queues_.size() && rounds > 0; ++i) {
      // Also if nothing more fits, so that a queue with long datums saves credit for a later pass.
      if (wants_this_kind(i)) queues_[i]->deficit += rounds * quantum_of(i);
      auto unit = next_unit(i);
      // Saved credit is spent one quantum at a time, so that no queue is served twice before the others.
      for (int64_t taken = 0; unit && static_cast<double>(taken) < quantum_of(i) && can_pay(i, *unit);
           unit = next_unit(i)) {
        take(i, *unit);
        taken += unit->cost;
      }
    }
    return rounds > 0;
  }

  // The margin covers the rounding of sums of quanta.
  bool can_pay(size_t index, const Unit& unit) const {
    return static_cast<double>(unit.cost) <= queues_[index]->deficit + 1e-6;
  }

  // Only differences of credit matter, so the credit that all queues have in common is subtracted.
  void take_back_common_credit() {
    double rounds = budget_;
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (wants_this_kind(i)) rounds = std::min(rounds, queues_[i]->deficit / quantum_of(i));
    }
    for (size_t i = 0; i < queues_.size() && rounds > 0; ++i) {
      if (wants_this_kind(i)) queues_[i]->deficit -= rounds * quantum_of(i);
    }
  }

  // The queues move only after everything that needs memory, so that none is lost.
  void settle() {
    std::stable_sort(plan_.slices.begin(), plan_.slices.end(), [](const Slice& left, const Slice& right) {
      return std::tie(left.queue->rank, left.queue->adapter) < std::tie(right.queue->rank, right.queue->adapter);
    });
    AdapterQueues served;
    AdapterQueues passed;
    served.reserve(queues_.size());
    passed.reserve(queues_.size());
    take_back_common_credit();
    for (size_t i = 0; i < queues_.size(); ++i) {
      AdapterQueue& queue = *queues_[i];
      // Credit and debt are limited to one pass.
      queue.deficit = std::clamp<double>(queue.deficit, -budget_, budget_);
      queue.passed_over = progress_[i].served ? 0 : queue.passed_over + 1;
      (progress_[i].served ? served : passed).push_back(std::move(queues_[i]));
    }
    queues_ = std::move(passed);
    std::move(served.begin(), served.end(), std::back_inserter(queues_));
  }

  AdapterQueues& queues_;
  const int budget_;
  std::vector<Progress> progress_;          // of each queue
  std::set<std::string_view> went_before_;  // tenants already served first in this pass
  PassPlan plan_;
  bool closed_ = false;  // the plan holds a request that runs alone
};

}  // namespace

PassPlan plan_pass(AdapterQueues& queues, int batch_tokens) {
  return PassPlanner(queues, batch_tokens).plan();
}

}  // namespace tuft::engine
