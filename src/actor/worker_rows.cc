#include "actor/worker_rows.h"

#include <algorithm>
#include <array>

namespace tuft::actor {
namespace {

constexpr std::ptrdiff_t kGoneMax = 32;

bool is_gone(const WorkerRow& row) {
  return row.state == WorkerState::kDead;
}

}  // namespace

std::string_view worker_state_name(WorkerState state) {
  constexpr std::array<std::string_view, kWorkerStates> kNames{"absent", "standby",  "starting", "ready",
                                                               "silent", "draining", "dead"};
  return kNames[static_cast<size_t>(state)];
}

uint64_t WorkerRows::add(WorkerRow row) {
  MutexLock lock(mutex_);
  row.number = ++last_;
  row.since = row.changed = system_clock().wall();
  rows_.push_back(std::move(row));
  if (std::count_if(rows_.begin(), rows_.end(), is_gone) > kGoneMax) {
    rows_.erase(std::find_if(rows_.begin(), rows_.end(), is_gone));
  }
  return last_;
}

void WorkerRows::set(uint64_t number, WorkerState state, std::string_view reason) {
  MutexLock lock(mutex_);
  const auto row =
      std::find_if(rows_.begin(), rows_.end(), [&](const WorkerRow& each) { return each.number == number; });
  if (row == rows_.end() || is_gone(*row)) return;
  row->state = state;
  row->reason = reason;
  row->changed = system_clock().wall();
}

std::vector<WorkerRow> WorkerRows::all() const {
  MutexLock lock(mutex_);
  return {rows_.begin(), rows_.end()};
}

int64_t WorkerRows::count(WorkerState state) const {
  MutexLock lock(mutex_);
  return std::count_if(rows_.begin(), rows_.end(), [&](const WorkerRow& row) { return row.state == state; });
}

}  // namespace tuft::actor
