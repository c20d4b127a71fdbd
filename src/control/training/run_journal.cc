#include "control/training/run_journal.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tuft::control {

void RunJournal::add(JournalEntryPtr entry, bool is_full) {
  if (!is_complete_) return;
  bytes_ += entry->memory.bytes();
  time_ += entry->time;
  is_full_ = is_full_ || is_full;
  entries_.push_back(std::move(entry));
}

void RunJournal::give_up() {
  begin();
  is_complete_ = false;
}

void RunJournal::saved(bool gradient_pending) {
  if (!is_complete_ && gradient_pending) return;  // the passes are not known
  is_complete_ = is_kept_;
  const auto is_step = [](const JournalEntryPtr& entry) { return entry->is_step(); };
  const auto last_step = std::find_if(entries_.rbegin(), entries_.rend(), is_step);
  for (auto left = std::distance(last_step, entries_.rend()); left > 0; --left) remove_first();
  is_full_ = false;
}

void RunJournal::begin() {
  is_complete_ = is_kept_;
  while (!entries_.empty()) remove_first();
  is_full_ = false;
  tries_ = 0;
}

bool RunJournal::try_again() {
  if (++tries_ <= kTriesMax) return true;
  give_up();
  return false;
}

void RunJournal::remove_first() {
  bytes_ -= entries_.front()->memory.bytes();
  time_ -= entries_.front()->time;
  entries_.pop_front();
}

}  // namespace tuft::control
