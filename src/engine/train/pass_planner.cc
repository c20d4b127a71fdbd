#include "engine/train/pass_planner.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace tuft::engine {
namespace {

constexpr int kRoundsPerPass = 8;   // the quantum of a tenant is the budget divided by it
constexpr double kRounding = 1e-6;  // covers the rounding of sums of quanta

class PassPlanner {
 public:
  PassPlanner(AdapterQueues& queues, AdapterDebts& debts, int batch_tokens)
      : queues_(queues), debts_(debts), budget_(batch_tokens), quantum_(std::max(1, batch_tokens / kRoundsPerPass)) {
    for (const auto& queue : queues_) count(queue->tenant, queue->deficit);
    for (const AdapterDebt& debt : debts_) count(debt.tenant, debt.credit);
    for (const auto& queue : queues_) {
      Tenant& tenant = tenants_.find(queue->tenant)->second;
      progress_.push_back({queue->tasks.front().task->next(), &tenant});
      is_shared_ = is_shared_ || &tenant != progress_.front().tenant;
    }
    choose_kind();
  }

  PassPlan plan() {
    for (size_t i = 0; i < queues_.size(); ++i) {
      // Only once per tenant, so that many adapters do not give a tenant more than its share.
      if (queues_[i]->passed_over < kPassedOverMax || owes(i) || progress_[i].tenant->went_before) continue;
      const auto unit = next_unit(i);
      if (!unit) continue;
      take(i, *unit);
      progress_[i].tenant->went_before = true;
    }
    while (run_rounds()) {
    }
    settle();
    return std::move(plan_);
  }

 private:
  struct Tenant {
    int queues = 0;            // and debts, which divide the credit of one adapter
    double credit = 0;         // of all of them, before this pass
    bool went_before = false;  // it was already served first in this pass
  };
  // How much of a queue this pass has taken.
  struct Progress {
    size_t datum = 0;
    Tenant* tenant = nullptr;
    size_t task = 0;
    std::optional<size_t> slice = {};  // the slice of that task
    bool served = false;
  };
  // The smallest part of a queue that is taken at once.
  struct Unit {
    size_t end = 0;
    int64_t tokens = 0;
    int64_t room = 0;
    int64_t cost = 0;
  };

  void count(std::string_view tenant, double credit) {
    Tenant& counted = tenants_[tenant];
    ++counted.queues;
    counted.credit += credit;
  }

  // Returns the credit of a queue per round, in tokens. The adapters of a tenant divide the credit of one adapter.
  double quantum_of(size_t index) const { return quantum_ / progress_[index].tenant->queues; }

  // Returns what the tenant of a queue owes, in tokens.
  double debt_of(size_t index) const {
    const double credit = progress_[index].tenant->credit;
    return credit < -kRounding ? -credit : 0.0;
  }
  bool owes(size_t index) const { return queues_[index]->deficit < -kRounding || debt_of(index) > 0; }

  // The pass is of the kind that the queue wants whose tenant owes least; of several the one that has waited longest.
  void choose_kind() {
    size_t first = 0;
    for (size_t i = 1; i < queues_.size(); ++i) {
      if (debt_of(i) < debt_of(first)) first = i;
    }
    plan_.backward = queues_[first]->tasks.front().task->backward();
  }

  bool waits(size_t index) const { return progress_[index].task < queues_[index]->tasks.size(); }

  bool wants_this_kind(size_t index) const {
    return waits(index) && queues_[index]->tasks[progress_[index].task].task->backward() == plan_.backward;
  }

  // Returns the next unit of the queue, or nullopt if it does not fit into this pass.
  std::optional<Unit> next_unit(size_t index) const {
    const AdapterQueue& queue = *queues_[index];
    const Progress& progress = progress_[index];
    if (!wants_this_kind(index)) return std::nullopt;
    const QueuedTask& queued = queue.tasks[progress.task];
    const TrainTask& task = *queued.task;
    const bool whole = progress.task > 0;
    const size_t next = progress.datum;
    const Unit unit = whole ? Unit{task.size(), task.tokens(), task.room(), task.cost()}
                            : Unit{next + 1, task.tokens_of(next), task.room_of(next), task.cost_of(next)};
    if (plan_.slices.empty()) return unit;
    if ((queued.alone || closed_) && !progress.slice) return std::nullopt;
    if (plan_.room + unit.room > budget_) return std::nullopt;
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
    plan_.room += unit.room;
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
    if (rounds <= 0) return false;
    // A pass gives the credit of one pass. What a queue needs beyond that to take something is lent, and it owes it.
    const double lent = is_shared_ ? std::max(0.0, rounds_ + rounds - budget_ / quantum_) : 0.0;
    for (size_t i = 0; i < queues_.size(); ++i) {
      // Also if nothing more fits, or it wants the other kind, so that it saves credit for a later pass.
      const bool earns = waits(i);
      if (earns) queues_[i]->deficit += rounds * quantum_of(i);
      auto unit = next_unit(i);
      // Saved credit is spent one quantum at a time, so that no queue is served twice before the others.
      for (int64_t taken = 0; unit && static_cast<double>(taken) < quantum_of(i) && can_pay(i, *unit);
           unit = next_unit(i)) {
        take(i, *unit);
        taken += unit->cost;
      }
      if (earns) queues_[i]->deficit -= lent * quantum_of(i);
    }
    rounds_ += rounds - lent;
    return true;
  }

  bool can_pay(size_t index, const Unit& unit) const {
    return static_cast<double>(unit.cost) <= queues_[index]->deficit + kRounding;
  }

  // Only differences of credit matter, so the credit that all queues have in common is subtracted. So is a debt that
  // they have in common: else it would grow without an end, and who comes later would have all passes until it is paid.
  void take_back_common_credit() {
    double common = rounds_;
    double most = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (!waits(i)) continue;
      const double credit = queues_[i]->deficit / quantum_of(i);
      common = std::min(common, credit);
      most = std::max(most, credit);
    }
    if (std::isinf(most)) return;  // nothing waits
    if (common <= 0) common = std::min(most, 0.0);
    for (size_t i = 0; i < queues_.size(); ++i) {
      // A debt is taken from those, too, of which nothing waits since this pass.
      if (waits(i) || common < 0) queues_[i]->deficit -= common * quantum_of(i);
    }
    rounds_ -= common;
  }

  // The adapters of which nothing waits pay as if it did.
  void pay_debts() {
    for (AdapterDebt& debt : debts_) debt.credit += rounds_ * quantum_ / tenants_.find(debt.tenant)->second.queues;
    std::erase_if(debts_, [](const AdapterDebt& debt) { return debt.credit >= -kRounding; });
  }

  void limit_credit(size_t index) {
    AdapterQueue& queue = *queues_[index];
    const Progress& progress = progress_[index];
    const int64_t next = waits(index) ? queue.tasks[progress.task].task->cost_of(progress.datum) : 0;
    queue.deficit = std::min(queue.deficit, static_cast<double>(std::max<int64_t>(budget_, next)));
    // Who is alone takes nothing from anybody.
    if (!is_shared_ || queue.deficit > -kRounding) queue.deficit = std::max(queue.deficit, 0.0);
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
    pay_debts();
    for (size_t i = 0; i < queues_.size(); ++i) {
      limit_credit(i);
      queues_[i]->passed_over = progress_[i].served ? 0 : queues_[i]->passed_over + 1;
      (progress_[i].served ? served : passed).push_back(std::move(queues_[i]));
    }
    queues_ = std::move(passed);
    std::move(served.begin(), served.end(), std::back_inserter(queues_));
  }

  AdapterQueues& queues_;
  AdapterDebts& debts_;
  const int budget_;
  const double quantum_;
  std::unordered_map<std::string_view, Tenant> tenants_;
  std::vector<Progress> progress_;  // of each queue
  bool is_shared_ = false;          // several tenants wait
  double rounds_ = 0;               // run for this pass, without what was lent
  PassPlan plan_;
  bool closed_ = false;  // the plan holds a request that runs alone
};

}  // namespace

PassPlan plan_pass(AdapterQueues& queues, AdapterDebts& debts, int batch_tokens) {
  return PassPlanner(queues, debts, batch_tokens).plan();
}

}  // namespace tuft::engine
