// Keeps the journals of runs (run_journal.h): what they hold counts for their users, up to
// limits.journal_bytes_per_user_max.
#pragma once

#include <cstdint>
#include <memory>

#include "base/byte_account.h"
#include "control/training/run.h"

namespace tuft::control {

// Thread-safe.
class RunJournals {
 public:
  explicit RunJournals(const int64_t& bytes_per_user_max) : bytes_max_(bytes_per_user_max) {}

  // The worker has made `operation`, a forward_backward or an optim_step, in `time`. Takes its payload.
  void keep_locked(Run& run, RunOperation& operation, Nanos time) const TUFT_REQUIRES(run.mutex);

 private:
  const int64_t& bytes_max_;
  const std::shared_ptr<ByteAccount> account_ = std::make_shared<ByteAccount>();  // by user
};

}  // namespace tuft::control
