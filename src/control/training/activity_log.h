// Says once a minute in the log what a base model trains, as long as it does: an operator who looks at the log alone
// sees that the server works.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "control/training/run_table.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Thread-safe.
class ActivityLog {
 public:
  static constexpr Nanos kPeriod = 60 * kSecond;

  ActivityLog(const Clock& clock, const ModelBackends& backends, const RunTable& runs)
      : clock_(clock), backends_(backends), runs_(runs), last_(clock.monotonic()) {}

  // Writes the event training.activity for each base model that has trained, or has training to do, once in kPeriod.
  // Call it often.
  void sweep();

 private:
  const Clock& clock_;
  const ModelBackends& backends_;
  const RunTable& runs_;
  Mutex mutex_;
  Nanos last_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<const Model*, TrainedTotals> before_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
