#include "control/training/run_journals.h"

#include <utility>

#include "control/types/operation_keys.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr int64_t kConsiderable = 1024;  // of journal_bytes_per_user_max

// Returns null if there is no room, or if the server does not have the request.
std::shared_ptr<JournalEntry> entry_of(RunOperation& operation, ByteAccount::Hold memory, int64_t bytes_max) {
  if (operation.resumes) return nullptr;
  if (memory.grow_to(operation.memory.bytes(), {.each = bytes_max}) != ByteAccount::Answer::kTaken) return nullptr;
  auto entry = std::make_shared<JournalEntry>();
  entry->memory = std::move(memory);
  if (auto* pass = std::get_if<worker::v1::ForwardBackwardRequest>(&operation.payload)) {
    entry->payload = std::move(*pass);
  } else {
    entry->payload = std::get<OptimStep>(operation.payload);
  }
  return entry;
}

}  // namespace

void RunJournals::keep_locked(Run& run, RunOperation& operation, Nanos time) const {
  if (!run.journal.is_complete()) return;
  auto entry = entry_of(operation, account_->open(run.user.str()), bytes_max_);
  if (entry == nullptr) {
    run.journal.give_up();
    telemetry::log_warning(
        "model.journal_given_up",
        "until its next checkpoint the model would go back if its worker were lost: its passes since "
        "the last one exceed limits.journal_bytes_per_user_max, or a former server process made them",
        KeyAttributes(keys_of(run)));
    return;
  }
  entry->time = time;
  // A run with a small part of its user's journals would save often and free little.
  const bool is_considerable = run.journal.bytes() + entry->memory.bytes() >= bytes_max_ / kConsiderable;
  run.journal.add(std::move(entry), is_considerable && account_->held_by(run.user.str()) > bytes_max_ / 2);
}

}  // namespace tuft::control
