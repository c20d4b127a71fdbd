#include "engine/train/fill.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace tuft::engine {
namespace {

constexpr int kRoundsPerPass = 8;  // of one tenant alone: the quantum is that part of the budget

class Filler {
 public:
  Filler(TrainLines& lines, int batch_tokens) : lines_(lines), budget_(batch_tokens) {
    std::unordered_map<std::string_view, int> lines_of;  // of each tenant
    for (const auto& line : lines_) ++lines_of[line->tenant];
    const double quantum = std::max(1, batch_tokens / kRoundsPerPass);
    for (const auto& line : lines_) {
      places_.push_back({line->tasks.front().task->next(), quantum / lines_of[line->tenant]});
    }
    plan_.backward = lines_.front()->tasks.front().task->backward();
  }

  PassPlan fill() {
    for (size_t i = 0; i < lines_.size(); ++i) {
      // Once a tenant, or who has many adapters would have more than a share.
      if (lines_[i]->passed_over < kPassedOverMax || went_before_.contains(lines_[i]->tenant)) continue;
      const auto unit = next_unit(i);
      if (!unit) continue;
      take(i, *unit);
      went_before_.insert(lines_[i]->tenant);
    }
    while (run_rounds()) {
    }
    settle();
    return std::move(plan_);
  }

 private:
  // How far a line was taken in this pass.
  struct Place {
    size_t datum = 0;
    double quantum = 0;
    size_t task = 0;
    std::optional<size_t> portion = {};  // of that task
    bool served = false;
  };
  // What is taken at once.
  struct Unit {
    size_t end = 0;
    int64_t tokens = 0;
  };

  // What a line is given in each round: the adapters of a tenant share what one has who has one adapter.
  double quantum_of(size_t index) const { return places_[index].quantum; }

  bool wants_this_kind(size_t index) const {
    const TrainLine& line = *lines_[index];
    const Place& place = places_[index];
    return place.task < line.tasks.size() && line.tasks[place.task].task->backward() == plan_.backward;
  }

  // What the line would give next; nothing where there is no place for it in this pass.
  std::optional<Unit> next_unit(size_t index) const {
    const TrainLine& line = *lines_[index];
    const Place& place = places_[index];
    if (!wants_this_kind(index)) return std::nullopt;
    const QueuedTask& queued = line.tasks[place.task];
    const TrainTask& task = *queued.task;
    const bool whole = place.task > 0;
    const Unit unit{whole ? task.size() : place.datum + 1, whole ? task.tokens() : task.tokens_of(place.datum)};
    if (plan_.portions.empty()) return unit;
    if ((queued.alone || closed_) && !place.portion) return std::nullopt;
    if (plan_.tokens + unit.tokens > budget_) return std::nullopt;
    return unit;
  }

  void take(size_t index, const Unit& unit) {
    TrainLine& line = *lines_[index];
    Place& place = places_[index];
    const QueuedTask& queued = line.tasks[place.task];
    if (!place.portion) {
      place.portion = plan_.portions.size();
      plan_.portions.push_back({&line, place.task, place.datum, place.datum, 0});
    }
    Portion& portion = plan_.portions[*place.portion];
    portion.end = unit.end;
    portion.tokens += static_cast<int>(unit.tokens);
    plan_.tokens += static_cast<int>(unit.tokens);
    line.deficit -= static_cast<double>(unit.tokens);
    closed_ = queued.alone;
    place.served = true;
    place.datum = unit.end;
    if (place.datum < queued.task->size()) return;
    place.datum = 0;
    ++place.task;
    place.portion.reset();
  }

  // So many rounds go by before a line can take something; 0: nothing fits.
  double rounds_until_next() const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    double fewest = kNone;
    for (size_t i = 0; i < lines_.size(); ++i) {
      const auto unit = next_unit(i);
      if (!unit) continue;
      const double missing = static_cast<double>(unit->tokens) - lines_[i]->deficit;
      fewest = std::min(fewest, std::max(1.0, std::ceil(missing / quantum_of(i))));
    }
    return fewest == kNone ? 0.0 : fewest;
  }

  // Rounds up to the next visit of every line in which one takes something; false where none has anything that fits.
  bool run_rounds() {
    const double rounds = rounds_until_next();
    for (size_t i = 0; i < lines_.size() && rounds > 0; ++i) {
      // Also where nothing fits any more: who has long datums gets the room in a later pass.
      if (wants_this_kind(i)) lines_[i]->deficit += rounds * quantum_of(i);
      auto unit = next_unit(i);
      // What it has saved up comes a turn's worth at a time, so that nobody comes twice before others come once.
      for (int64_t taken = 0; unit && static_cast<double>(taken) < quantum_of(i) && can_pay(i, *unit);
           unit = next_unit(i)) {
        take(i, *unit);
        taken += unit->tokens;
      }
    }
    return rounds > 0;
  }

  // Parts of tokens do not add up exactly.
  bool can_pay(size_t index, const Unit& unit) const {
    return static_cast<double>(unit.tokens) <= lines_[index]->deficit + 1e-6;
  }

  // What all of them were given beyond the room that there was means nothing: only differences count.
  void take_back_common_credit() {
    double rounds = budget_;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (wants_this_kind(i)) rounds = std::min(rounds, lines_[i]->deficit / quantum_of(i));
    }
    for (size_t i = 0; i < lines_.size() && rounds > 0; ++i) {
      if (wants_this_kind(i)) lines_[i]->deficit -= rounds * quantum_of(i);
    }
  }

  void settle() {
    take_back_common_credit();
    TrainLines served;
    TrainLines passed;
    for (size_t i = 0; i < lines_.size(); ++i) {
      TrainLine& line = *lines_[i];
      // Neither saves up nor owes more than a pass.
      line.deficit = std::clamp<double>(line.deficit, -budget_, budget_);
      line.passed_over = places_[i].served ? 0 : line.passed_over + 1;
      (places_[i].served ? served : passed).push_back(std::move(lines_[i]));
    }
    lines_ = std::move(passed);
    std::move(served.begin(), served.end(), std::back_inserter(lines_));
    std::stable_sort(plan_.portions.begin(), plan_.portions.end(), [](const Portion& left, const Portion& right) {
      return std::tie(left.line->rank, left.line->adapter) < std::tie(right.line->rank, right.line->adapter);
    });
  }

  TrainLines& lines_;
  const int budget_;
  std::vector<Place> places_;               // of each line
  std::set<std::string_view> went_before_;  // tenants, because they had waited for long
  PassPlan plan_;
  bool closed_ = false;  // what is in it wants no company
};

}  // namespace

PassPlan fill_pass(TrainLines& lines, int batch_tokens) {
  return Filler(lines, batch_tokens).fill();
}

}  // namespace tuft::engine
