// Feeds the telemetry store with a request of an unknown sender, and with a segment file that somebody damaged.
#include <string>

#include "base/check.h"
#include "target.h"
#include "telemetry_store/memory_segment.h"
#include "telemetry_store/metric_reader.h"
#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/otlp_reader.h"

namespace {

using namespace tuft::telemetry_store;
using namespace tuft::telemetry_store::internal;

void read_requests(std::string_view bytes) {
  read_spans(bytes, [](const ScopeView&, const SpanView& view) {
    tuft::telemetry_store::Span span;
    tuft::fuzz::require(view.trace.valid() && view.span != 0 && view.duration >= 0);
    decode_span(view.bytes, span);
    span_contains(view.bytes, "a");
    read_links(view.bytes, [](const TraceId& trace, uint64_t) { tuft::fuzz::require(trace.valid()); });
  });
  read_logs(bytes, [](const ScopeView&, const LogView& view) {
    LogRecord log;
    decode_log(view.bytes, log);
    log_contains(view.bytes, "a");
  });
  read_metrics(bytes, [](const MetricView&, const PointView& point) {
    tuft::fuzz::require(point.counts.empty() || point.counts.size() == point.bounds.size() + 1);
  });
}

void read_segment(std::string_view bytes) {
  MemorySegment segment(1, bytes.size());
  segment.append_file(std::string(bytes), tuft::kSecond);
  const Extent extent = segment.extent();
  for (const Table table : {Table::kSpans, Table::kLogs}) {
    const auto positions = segment.column<uint32_t>(table, Column::kPosition, extent.rows_of(table));
    const auto sizes = segment.column<uint32_t>(table, Column::kSize, extent.rows_of(table));
    tuft::fuzz::require(positions.size() == extent.rows_of(table));
    for (size_t i = 0; i < positions.size(); ++i)
      tuft::fuzz::require(uint64_t{positions[i]} + sizes[i] <= bytes.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = tuft::fuzz::text_of(data, size);
  read_requests(bytes);
  read_segment(bytes);
  return 0;
}
