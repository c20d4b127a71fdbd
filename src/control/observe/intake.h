// The way of telemetry of users' own programs into the embedded store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/types/types.h"
#include "telemetry/otlp/exporter.h"
#include "telemetry_store/rejections.h"
#include "telemetry_store/store.h"

namespace tuft::control {

// The longest request that is taken, after decompression, where the store's queue has room for it: see
// Intake::body_bytes_max().
inline constexpr int64_t kIntakeBytesMax = 4 << 20;

// The reasons of refusals after which the same request may be taken a moment later.
inline constexpr std::string_view kIntakeRate = "intake_rate";
inline constexpr std::string_view kIntakeQueueFull = "intake_queue_full";

using IntakeSignal = telemetry::internal::Signal;

// Takes encoded Export{Trace,Logs,Metrics}ServiceRequests. All that a request holds belongs to its user, whatever it
// says about itself.
//
// Nobody can push the records of others out of the store, or keep it busy. A user may send 1 MiB a second (8 MiB at
// once) and 5,000 records a second (20,000 at once), and, until the oldest records are removed by their age, a quarter
// of telemetry.store.disk_bytes_max: an eighth at once, which fills again in telemetry.store.age_max_seconds. A record
// counts as at least 128 bytes, and a request as 1 KiB more. A request that is refused costs an eighth of its bytes,
// for the work of reading it, and all of them if it is no request.
//
// Thread-safe. A call takes time in proportion to the request, to count its records, and does not block.
class Intake {
 public:
  // `store` is null if nothing is kept.
  Intake(telemetry_store::Store* store, int64_t disk_bytes_max, Nanos age_max, const Clock& clock)
      : store_(store), disk_bytes_max_(disk_bytes_max), age_max_(age_max), clock_(clock) {}

  // Returns the encoded Export{Trace,Logs,Metrics}ServiceResponse: empty if all is kept, else with a partial_success
  // that says what is not. For what series the store has no place is known only later: the answer to the next request
  // with metrics says it of the ones before, as a warning, that is with a text and without a number.
  //
  // Returns kUnavailable without a store, kPayloadTooLarge, also for more records than may come at once,
  // kInvalidArgument if it is not such a message, and kResourceExhausted, naming the limit, if the user has sent too
  // much (kIntakeRate, "intake_share"), or if what they have sent before still waits in the store's queue
  // (kIntakeQueueFull). Then nothing is kept of it.
  Result<std::string> take(const UserId& user, IntakeSignal signal, std::string request);
  // Returns the size of the longest request that take() takes. It depends on telemetry.store.memory_bytes_max.
  int64_t body_bytes_max() const;

  // To be asked before a request is read, and before it is decompressed, which makes work: kResourceExhausted if the
  // user may send nothing now. Charges nothing.
  Status may_send(const UserId& user, IntakeSignal signal);
  // Counts the bytes of a request that was refused after work was done for it.
  void charge_refused(const UserId& user, int64_t bytes);

 private:
  // What a user may send now. It grows with the time up to what may come at once.
  struct OfUser {
    double bytes = 0, records = 0, share = 0;
    Nanos filled = 0;
  };

  struct Cost {
    double bytes = 0, records = 0, share = 0;
  };

  Result<telemetry_store::Rejections> keep(const UserId& user, IntakeSignal signal, std::string request);
  bool queue(const UserId& user, IntakeSignal signal, std::string request);
  static Status check(const OfUser& own, const Cost& cost);
  Status charge(const UserId& user, const Cost& cost);
  void give_back(const UserId& user, const Cost& cost);
  OfUser& filled(const UserId& user) TUFT_REQUIRES(mutex_);

  telemetry_store::Store* const store_;
  const int64_t disk_bytes_max_;
  const Nanos age_max_;
  const Clock& clock_;
  Mutex mutex_;
  std::unordered_map<UserId, OfUser> users_ TUFT_GUARDED_BY(mutex_);
};

// Returns the number of records in an encoded request (spans, log records, data points); nothing if it is not one.
std::optional<int64_t> count_records(IntakeSignal signal, std::string_view request);

}  // namespace tuft::control
