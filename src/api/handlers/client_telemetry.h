// Turns the events that the SDK reports (POST /telemetry) into log records and counters. Event data can contain API
// keys, messages can contain prompts, and tracebacks both, so only names from closed sets, severities, numbers and ids
// are used.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "api/exchange.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::api {

// Limits the events of each user per minute. Thread-safe. Has one entry per user.
class ClientEventBudget {
 public:
  static constexpr int kEventsPerMinute = 3'000;
  static constexpr size_t kBytesPerMinute = size_t{8} << 20;

  // Returns false if the bytes exceed the user's limit.
  bool take_bytes(const control::UserId& user, size_t bytes, Nanos now) TUFT_EXCLUDES(mutex_);
  // Returns false if one more event exceeds the user's limit.
  bool take_event(const control::UserId& user, Nanos now) TUFT_EXCLUDES(mutex_);

 private:
  struct Minute {
    Nanos begin = 0;
    size_t bytes = 0;
    int events = 0;
  };
  Minute& minute_locked(const control::UserId& user, Nanos now) TUFT_REQUIRES(mutex_);

  Mutex mutex_;
  std::unordered_map<control::UserId, Minute> minutes_ TUFT_GUARDED_BY(mutex_);
};

// Logs and counts the events of a body, at most 100. Never fails: a malformed body is counted as event "malformed", and
// events over a limit in tuft.client.events.dropped. The session is named only if it belongs to the user.
void record_client_events(Exchange& exchange, ClientEventBudget& budget);

}  // namespace tuft::api
