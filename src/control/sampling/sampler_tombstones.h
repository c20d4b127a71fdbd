// Remembers for users why their sampling sessions are gone.
#pragma once

#include <cstddef>
#include <string>

#include "base/mutex.h"
#include "control/types/recent_by_user.h"
#include "control/types/types.h"

namespace tuft::control {

// Remembers kTombstonesMax, the newest of each user. Thread-safe; its lock is innermost.
class SamplerTombstones {
 public:
  static constexpr size_t kTombstonesMax = 16'384;

  // `why`: a sentence that says what to do.
  void note(const SamplerId& sampler, const UserId& user, std::string why);
  // Returns the reason; empty if it is not known or the sampling session was not this user's.
  std::string why(const SamplerId& sampler, const UserId& user) const;

 private:
  mutable Mutex mutex_;
  RecentByUser<SamplerId, std::string> gone_ TUFT_GUARDED_BY(mutex_){kTombstonesMax};
};

}  // namespace tuft::control
