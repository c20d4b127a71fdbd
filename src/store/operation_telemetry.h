// What is recorded of store operations: one client span, the duration metrics, errors and slow ones. Never a key's
// value, nor a key: ids stand on the spans around it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/context.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"

namespace tuft::store {

enum class Operation : uint8_t { kSet, kGet, kDelete, kScan };
inline constexpr size_t kOperationCount = 4;

// TuFT's threshold.
inline constexpr Nanos kSlowOperation = 100 * kMillisecond;

// Who is asked, in the words of OpenTelemetry.
struct StoreIdentity {
  std::string name;     // for people
  std::string system;   // db.system.name: "redis", "sqlite", "memory"
  std::string address;  // server.address; empty for a store in this process
  int port = 0;
  std::string database;  // db.namespace; may be empty
  telemetry::Name scope;
  std::array<telemetry::Name, kOperationCount> span_names;  // by Operation
  bool is_redis = false;                                    // has TuFT's metric beside the standard one
};

// Confined to the store's thread.
class OperationTelemetry {
 public:
  explicit OperationTelemetry(StoreIdentity identity);

  // An operation that was asked for at `began` and answered at `ended` (monotonic), as child of `trace`.
  void record(Operation operation, const telemetry::SpanContext& trace, Nanos began, Nanos ended,
              const Status& result) const;
  // One WARN where it took longer than kSlowOperation.
  void warn_if_slow(Operation operation, const telemetry::SpanContext& trace, Nanos began, Nanos ended) const;

  const StoreIdentity& identity() const { return identity_; }

 private:
  struct Instruments {
    telemetry::BoundHistogram redis, client;
    telemetry::BoundCounter slow;
  };

  const StoreIdentity identity_;
  const telemetry::Tracer tracer_;
  std::array<Instruments, kOperationCount> instruments_;
};

}  // namespace tuft::store
