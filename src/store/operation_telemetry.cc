#include "store/operation_telemetry.h"

#include <string_view>
#include <utility>

#include "metrics/store.h"
#include "telemetry/log.h"

namespace tuft::store {
namespace {

constexpr std::array<std::string_view, kOperationCount> kNames{"SET", "GET", "DEL", "SCAN"};

std::string_view name_of(Operation operation) {
  return kNames[static_cast<size_t>(operation)];
}

}  // namespace

OperationTelemetry::OperationTelemetry(StoreIdentity identity)
    : identity_(std::move(identity)), tracer_(telemetry::get_tracer(identity_.scope)) {
  for (size_t i = 0; i < kOperationCount; ++i) {
    if (identity_.is_redis)
      instruments_[i].redis = metrics::store().redis_operation_duration.with({{"operation", kNames[i]}});
    instruments_[i].client = metrics::store().db_client_operation_duration.with(
        {{"db.system.name", identity_.system}, {"db.operation.name", kNames[i]}});
    instruments_[i].slow = metrics::store().slow_operations.with({{"operation", kNames[i]}});
  }
}

void OperationTelemetry::record(Operation operation, const telemetry::SpanContext& trace, Nanos began, Nanos ended,
                                const Status& result) const {
  const std::string_view name = name_of(operation);
  telemetry::Span span = tracer_.start_span(identity_.span_names[static_cast<size_t>(operation)],
                                            {.attributes = {{"db.system", identity_.system},
                                                            {"db.system.name", identity_.system},
                                                            {"db.operation", name},
                                                            {"db.operation.name", name}},
                                             .parent = trace,
                                             .kind = telemetry::SpanKind::kClient,
                                             .start = began});
  if (!identity_.address.empty()) span.set_attribute("server.address", identity_.address);
  if (identity_.port != 0) span.set_attribute("server.port", identity_.port);
  if (!identity_.database.empty()) span.set_attribute("db.namespace", identity_.database);
  if (!result.ok()) span.record_error(result.error());
  span.end(ended);

  const double seconds = to_seconds(ended - began);
  // Exemplars lead from the histograms to this span.
  const telemetry::ContextScope scope(span.context());
  const Instruments& instruments = instruments_[static_cast<size_t>(operation)];
  if (result.ok()) {
    instruments.client.record(seconds);
    if (identity_.is_redis) instruments.redis.record(seconds);
    return;
  }
  const std::string& reason = result.error().reason;
  metrics::store().db_client_operation_duration.record(
      seconds, {{"db.system.name", identity_.system}, {"db.operation.name", name}, {"error.type", reason}});
  metrics::store().errors.add(1, {{"operation", name}, {"reason", reason}});
}

void OperationTelemetry::warn_if_slow(Operation operation, const telemetry::SpanContext& trace, Nanos began,
                                      Nanos ended) const {
  if (ended - began <= kSlowOperation) return;
  instruments_[static_cast<size_t>(operation)].slow.add(1);
  const telemetry::ContextScope scope(trace);
  telemetry::log_warning("store.slow", identity_.name + " was slow",
                         {{"db.system.name", identity_.system},
                          {"db.operation.name", name_of(operation)},
                          {"tuft.seconds", to_seconds(ended - began)}});
}

}  // namespace tuft::store
