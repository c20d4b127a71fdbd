// Why samplers are not there any more, for their users.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "control/types.h"

namespace tuft::control {

// The newest kGoneSamplersMax. Thread-safe; its lock is innermost.
class GoneSamplers {
 public:
  static constexpr size_t kGoneSamplersMax = 16'384;

  // `why`: a sentence that says what to do.
  void note(const SamplerId& sampler, const UserId& user, std::string why);
  // Empty: not known, or not this user's.
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
