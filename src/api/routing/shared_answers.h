// Answers that are given again. The charts of a page that many have open ask the same questions of the telemetry store
// every few seconds, and an answer takes the longer the more spans there are.
//
// An answer is given again, to the user it was made for, for kShare times as long as it took to make, but between
// kAgeMin and kAgeMax. So, up to kAgeMax, a question takes at most a kShare-th of a processor, however many ask it.
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

namespace tuft::api {

// Thread-safe.
class SharedAnswers {
 public:
  static constexpr Nanos kAgeMin = kSecond, kAgeMax = 5 * kSecond;
  static constexpr int64_t kShare = 100;
  // Over this the oldest answers leave. A larger answer than kAnswerBytesMax is not kept.
  static constexpr size_t kBytesMax = 8 << 20;
  static constexpr size_t kAnswerBytesMax = 256 << 10;

  // Returns the answer to `question`, which names the user, too; nothing if it has to be made.
  std::optional<Response> find(std::string_view question, Nanos now) const TUFT_EXCLUDES(mutex_);
  // Keeps a successful answer without a stream, which took from `began` until `now` to make. Its bytes become shared.
  void keep(std::string question, Response& answer, Nanos began, Nanos now) TUFT_EXCLUDES(mutex_);
  // Returns the memory of all answers.
  size_t bytes() const TUFT_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::string question;
    Response answer;
    Nanos until = 0;
    size_t bytes = 0;
  };
  using Entries = std::list<Entry>;  // oldest first

  void remove_locked(Entries::iterator entry) TUFT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Entries entries_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<std::string_view, Entries::iterator> by_question_ TUFT_GUARDED_BY(mutex_);
  size_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::api
