// Remembers for users why their sampling sessions are gone.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "control/types/types.h"

namespace tuft::control {

// Remembers the newest kTombstonesMax. Thread-safe; its lock is innermost.
class SamplerTombstones {
 public:
  static constexpr size_t kTombstonesMax = 16'384;

  // `why`: a sentence that says what to do.
  void note(const SamplerId& sampler, const UserId& user, std::string why);
  // Returns the reason; empty if it is not known or the sampling session was not this user's.
  std::string why(const SamplerId& sampler, const UserId& user) const;

 private:
  struct Gone {
    UserId user;
    std::string why;
  };

  mutable Mutex mutex_;
  std::unordered_map<SamplerId, Gone> gone_ TUFT_GUARDED_BY(mutex_);
  std::deque<SamplerId> order_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
