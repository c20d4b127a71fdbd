// Telemetry of store operations: a client span, duration metrics, errors, and warnings of slow operations. It contains
// neither keys nor values.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/context.h"
#include "telemetry/instrument.h"
#include "telemetry/trace.h"

namespace tuft::store {

enum class Operation : uint8_t { kSet, kGet, kDelete, kScan };
inline constexpr size_t kOperationCount = 4;

// The threshold of TuFT.
inline constexpr Nanos kSlowOperation = 100 * kMillisecond;

// Identifies the store in OpenTelemetry's terms.
struct StoreIdentity {
  std::string name;     // for messages
  std::string system;   // db.system.name: "redis", "sqlite", "memory"
  std::string address;  // server.address; empty for a store in this process
  int port = 0;
  std::string database;  // db.namespace; may be empty
  telemetry::Name scope;
  std::array<telemetry::Name, kOperationCount> span_names;  // by Operation
  bool is_redis = false;                                    // also updates TuFT's Redis metric
};

// Confined to the store's thread.
class OperationTelemetry {
 public:
  explicit OperationTelemetry(StoreIdentity identity);

  // Records an operation from `began` to `ended` (monotonic times) as a child of `trace`.
  void record(Operation operation, const telemetry::SpanContext& trace, Nanos began, Nanos ended,
              const Status& result) const;
  // Logs a warning if the operation took longer than kSlowOperation.
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
