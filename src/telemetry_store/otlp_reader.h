// Reads what the store indexes from encoded OTLP: of spans and log records, without copying. Internal to
// telemetry_store.
//
// The bytes may come from a user's program. Everything is bounded; a malformed record is left out and counted, the
// others are read. Views point into the request.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/clock.h"

namespace tuft::telemetry_store::internal {

// An encoded Span or LogRecord above this size is left out.
inline constexpr size_t kRecordBytesMax = size_t{1} << 20;
// Attributes of a record that are looked at for share keys; links of a span that are indexed.
inline constexpr size_t kAttributesMax = 1024;
inline constexpr size_t kLinksMax = 4096;

struct TraceId {
  uint64_t high = 0, low = 0;
  bool valid() const { return (high | low) != 0; }
  friend bool operator==(const TraceId&, const TraceId&) = default;
};

// The share keys that have a column, in the order of the columns.
enum class Key : uint8_t { kSession, kRun, kSampler, kRequest, kOperation, kBaseModel };
inline constexpr size_t kKeys = 6;

// What spans and log records have in common.
struct RecordView {
  std::string_view bytes;  // the encoded Span or LogRecord
  TraceId trace;           // of a log record: may be invalid
  uint64_t span = 0;
  std::string_view name;  // of a log record: its event
  std::array<std::string_view, kKeys> keys;
  std::string_view user;  // the attribute tuft.user
};

struct SpanView : RecordView {
  uint64_t parent = 0;
  int kind = 0;
  Nanos start = 0, duration = 0;
  bool failed = false;
  size_t links = 0;
};

struct LogView : RecordView {
  Nanos time = 0;
  int severity = 0;
};

// The instrumentation scope that a record stands in.
struct ScopeView {
  std::string_view service;  // service.name of the resource
  std::string_view scope;
};

// Each returns how many records were left out because they are malformed or too large, and calls `left_out` with the
// bytes of each that has an end. The visitor gets every other record.
size_t read_spans(std::string_view request, const std::function<void(const ScopeView&, const SpanView&)>& visit,
                  const std::function<void(std::string_view record)>& left_out = {});
size_t read_logs(std::string_view request, const std::function<void(const ScopeView&, const LogView&)>& visit,
                 const std::function<void(std::string_view record)>& left_out = {});

// Reads one encoded record. Returns false if it is malformed, a span without ids, or too large.
bool read_span(std::string_view bytes, SpanView& out);
bool read_log(std::string_view bytes, LogView& out);
// Calls `visit` with the target of each link of an encoded Span, at most kLinksMax.
void read_links(std::string_view span, const std::function<void(const TraceId&, uint64_t span)>& visit);

// Returns service.name of a ResourceSpans, ResourceLogs or ResourceMetrics.
std::string_view service_of_resource(std::string_view resource_records);

// Reads an id of 16 or 8 bytes; an id of another length is invalid (zero).
TraceId trace_id_of(std::string_view bytes);
uint64_t span_id_of(std::string_view bytes);

// Field numbers that are used in several files: opentelemetry/proto/{trace,logs,common}/v1.
namespace field {
inline constexpr uint32_t kKeyValueKey = 1, kKeyValueValue = 2;
inline constexpr uint32_t kAnyString = 1, kAnyBool = 2, kAnyInt = 3, kAnyDouble = 4, kAnyArray = 5, kAnyMap = 6,
                          kAnyBytes = 7;
inline constexpr uint32_t kSpanTrace = 1, kSpanId = 2, kSpanParent = 4, kSpanName = 5, kSpanKind = 6, kSpanStart = 7,
                          kSpanEnd = 8, kSpanAttributes = 9, kSpanEvents = 11, kSpanLinks = 13, kSpanStatus = 15;
inline constexpr uint32_t kStatusMessage = 2, kStatusCode = 3;
inline constexpr uint32_t kEventTime = 1, kEventName = 2, kEventAttributes = 3;
inline constexpr uint32_t kLinkTrace = 1, kLinkSpan = 2, kLinkAttributes = 4;
inline constexpr uint32_t kLogTime = 1, kLogSeverity = 2, kLogBody = 5, kLogAttributes = 6, kLogTrace = 9,
                          kLogSpan = 10, kLogObserved = 11, kLogEvent = 12;
}  // namespace field
// The number of STATUS_CODE_ERROR.
inline constexpr uint64_t kStatusError = 2;

}  // namespace tuft::telemetry_store::internal
