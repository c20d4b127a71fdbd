// The passes and steps that a run has made since its restore point. Of a base model with `replicate: true` they are
// made again at another worker when that of the run is lost (run_replay.h), so that nothing is lost which was answered.
//
// A journal that becomes long asks for a new restore point, which the server saves at the end of the step
// (worker_drain.h). One that would exceed what its user may have, because gradients of many passes wait for a step, is
// given up: until its next restore point the run is like one without a journal.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <variant>

#include "base/byte_account.h"
#include "base/clock.h"
#include "control/types/types.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

// A pass or a step that a worker has made.
struct JournalEntry {
  std::variant<worker::v1::ForwardBackwardRequest, OptimStep> payload;
  ByteAccount::Hold memory;  // of the payload
  Nanos time = 0;            // that the worker took

  bool is_step() const { return std::holds_alternative<OptimStep>(payload); }
};
using JournalEntryPtr = std::shared_ptr<const JournalEntry>;

// Not thread-safe: the run's lock guards it.
class RunJournal {
 public:
  // To make them again takes about so long at most, when the worker has no other work.
  static constexpr Nanos kTimeMax = 20 * kSecond;
  static constexpr size_t kEntriesMax = 512;
  static constexpr int64_t kBytesMax = 16 << 20;
  // A restore that makes the entries again is tried so often, because they could be what ended the workers. Usually
  // they are not, and another user's request is: so more often than that user's requests are tried.
  static constexpr int kTriesMax = 20;

  // `is_kept`: whether the base model has replicate: true. Otherwise nothing is ever kept.
  explicit RunJournal(bool is_kept) : is_kept_(is_kept), is_complete_(is_kept) {}

  // Whether the entries lead from the restore point, or from the first state of a run without one, to the present
  // state.
  bool is_complete() const { return is_complete_; }
  bool is_long() const {
    return is_kept_ &&
           (!is_complete_ || is_full_ || entries_.size() >= kEntriesMax || time_ >= kTimeMax || bytes_ >= kBytesMax);
  }
  const std::list<JournalEntryPtr>& entries() const { return entries_; }
  int64_t bytes() const { return bytes_; }

  // Adds what the run has just made. `is_full`: its user has so much that a restore point is needed soon.
  void add(JournalEntryPtr entry, bool is_full);
  // Something was made that cannot be made again.
  void give_up();
  // A checkpoint of the present state is the restore point. The passes of a pending gradient, which no checkpoint
  // holds, stay.
  void saved(bool gradient_pending);
  // The restore point is the present state, without a gradient.
  void begin();

  // A restore makes the entries again. Returns false if that was tried often enough: they are given up.
  bool try_again();
  void done() { tries_ = 0; }

 private:
  void remove_first();

  const bool is_kept_;
  bool is_complete_;
  bool is_full_ = false;
  std::list<JournalEntryPtr> entries_;
  int64_t bytes_ = 0;
  Nanos time_ = 0;
  int tries_ = 0;
};

}  // namespace tuft::control
