// What the SDK tells about itself (POST /telemetry) as log records and counters of ours. Event data can hold headers
// with API keys, messages can hold prompts, tracebacks can hold both: only names out of closed sets, the severity,
// numbers and ids leave this file.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "api/exchange.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::api {

// What one user may report in a minute. Thread-safe; as large as the list of users.
class ClientEventBudget {
 public:
  static constexpr int kEventsPerMinute = 3'000;
  static constexpr size_t kBytesPerMinute = size_t{8} << 20;

  // False where the bytes are over the user's limit.
  bool take_bytes(const control::UserId& user, size_t bytes, Nanos now) TUFT_EXCLUDES(mutex_);
  // The same for one event.
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

// Never fails: what it does not understand is counted as event "malformed", what is over a limit in
// tuft.client.events.dropped. Reads at most 100 events of a body. A session that is not the user's is not named.
void record_client_events(Exchange& exchange, ClientEventBudget& budget);

}  // namespace tuft::api
