// Keeps recently finished spans in the process, so that the server itself can export a session's trace, whether or not
// a collector works. telemetry.trace_archive_bytes limits it; the oldest spans make room for new ones. The telemetry
// thread adds spans when it encodes them, so that recording costs nothing extra. Spans that sampling left out are not
// in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/record/tail_sampler.h"

namespace tuft::telemetry {

// Returns false if tracing is off in this process or trace_archive_bytes is 0.
bool archives_spans();
// Returns the traces in which the session (tuft.session_id) has a span, oldest first; if there are more than
// `traces_max`, the newest. Waits for the telemetry thread, some milliseconds and at most a second, so that all ended
// spans are included.
std::vector<TraceId> archived_traces(std::string_view session_id, size_t traces_max);
// Returns the spans of these traces as an ExportTraceServiceRequest; if they exceed `bytes_max`, the newest spans.
// Returns an empty result if there are none. Waits as archived_traces() does.
std::string archived_spans(std::span<const TraceId> traces, size_t bytes_max);

namespace internal {

// Thread-safe. Allocates nothing before the first span.
class SpanArchive {
 public:
  // `resource` is an encoded Resource, see otlp/resource.h.
  SpanArchive(size_t bytes_max, std::string resource);

  // `session_id` is empty if the span has none. `scope` lives as long as the process. `span` is field 2 of a
  // ScopeSpans, including its tag and length.
  void add(const TraceId& trace, std::string_view session_id, std::string_view scope, std::string_view span)
      TUFT_EXCLUDES(mutex_);

  std::vector<TraceId> traces_of(std::string_view session_id, size_t traces_max) const TUFT_EXCLUDES(mutex_);
  std::string spans_of(std::span<const TraceId> traces, size_t bytes_max) const TUFT_EXCLUDES(mutex_);
  size_t bytes() const TUFT_EXCLUDES(mutex_);

 private:
  struct Entry;

  Entry entry_at_locked(uint64_t position) const TUFT_REQUIRES(mutex_);
  template <typename Take>
  void for_each_locked(Take&& take) const TUFT_REQUIRES(mutex_);

  const size_t bytes_max_;
  const std::string resource_;
  mutable Mutex mutex_;
  // A circular buffer of entries, oldest first. Positions only grow.
  std::unique_ptr<std::byte[]> bytes_ TUFT_GUARDED_BY(mutex_);
  uint64_t begin_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t end_ TUFT_GUARDED_BY(mutex_) = 0;
};

// Returns the tuft.session_id of a span record in a ring; empty if it has none.
std::string_view session_of(const std::byte* record);

}  // namespace internal
}  // namespace tuft::telemetry
