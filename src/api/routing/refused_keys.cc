#include "api/routing/refused_keys.h"

#include <atomic>

#include "base/clock.h"
#include "metrics/http.h"
#include "telemetry/log.h"

namespace tuft::api {

std::optional<RefusedKey> count_refused_key(const Error& error) {
  static std::atomic<Nanos> logged{-kSecond};
  static std::atomic<uint64_t> left_out{0};
  const bool is_missing = error.code == ErrorCode::kUnauthenticated;
  metrics::http().auth_failures.add(1, {{"reason", is_missing ? "missing" : "unknown"}});
  const Nanos now = system_clock().monotonic();
  Nanos last = logged.load(std::memory_order_relaxed);
  if (now - last < kSecond || !logged.compare_exchange_strong(last, now)) {
    left_out.fetch_add(1, std::memory_order_relaxed);
    telemetry::count_suppressed_log("auth.failed");
    return std::nullopt;
  }
  return RefusedKey{error, left_out.exchange(0)};
}

}  // namespace tuft::api
