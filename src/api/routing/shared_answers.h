// Answers that are given again. The charts of a page that many have open ask the same questions of the telemetry store
// every few seconds, and an answer takes the longer the more spans there are.
//
// An answer is given again, to the user it was made for, for kShare times as long as it took to make, but between
// kAgeMin and kAgeMax. So, up to kAgeMax, a question takes about a kShare-th of a processor, however many ask it.
//
// A user's answers never push out those of others.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "api/exchange.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "control/types/types.h"

namespace tuft::api {

// Thread-safe.
class SharedAnswers {
 public:
  static constexpr Nanos kAgeMin = kSecond, kAgeMax = 5 * kSecond;
  static constexpr int64_t kShare = 100;
  // Over these the user's oldest answers leave. A larger answer than kAnswerBytesMax is not kept.
  static constexpr size_t kAnswersOfUserMax = 64;
  static constexpr size_t kBytesOfUserMax = 1 << 20;
  static constexpr size_t kAnswerBytesMax = 256 << 10;
  // Over this an answer is not kept, and those that are too old leave.
  static constexpr size_t kBytesMax = 16 << 20;

  // Returns the user's answer to `question`; nothing if it has to be made.
  std::optional<Response> find(const control::UserId& user, std::string_view question, Nanos now) const
      TUFT_EXCLUDES(mutex_);
  // Keeps a successful answer without a stream, which took from `began` until `now` to make. Its bytes become shared.
  void keep(const control::UserId& user, std::string question, Response& answer, Nanos began, Nanos now)
      TUFT_EXCLUDES(mutex_);
  // Returns the memory of all answers.
  size_t bytes() const TUFT_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::string question;
    Response answer;
    Nanos until = 0;
    size_t bytes = 0;
  };
  using Entries = std::list<Entry>;
  struct Shelf {      // of a user
    Entries entries;  // oldest first
    size_t bytes = 0;
  };

  Entries::iterator remove_locked(Shelf& shelf, Entries::iterator entry) TUFT_REQUIRES(mutex_);
  // Removes what is too old, and the answer to `question`.
  void remove_old_locked(Shelf& shelf, Nanos now, std::string_view question = {}) TUFT_REQUIRES(mutex_);
  void remove_old_locked(Nanos now) TUFT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<control::UserId, Shelf> shelves_ TUFT_GUARDED_BY(mutex_);
  size_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  Nanos looked_at_ TUFT_GUARDED_BY(mutex_) = 0;  // when remove_old_locked() looked at all shelves
};

}  // namespace tuft::api
