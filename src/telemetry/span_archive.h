// The finished spans of the last while, kept in the process so that a session's trace can be had from the server
// itself, whatever became of the collector. Bounded by telemetry.trace_archive_bytes: the oldest make room for the
// newest. The telemetry thread puts spans in as it encodes them; who records pays nothing. Spans that sampling left out
// are not in it.
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
#include "telemetry/tail_sampler.h"

namespace tuft::telemetry {

// False where tracing is off in this process, or trace_archive_bytes is 0.
bool archives_spans();
// Traces in which the session (tuft.session_id) has a span, oldest first; of more than `traces_max` the newest. Waits
// for the telemetry thread, so that what has ended is there: some milliseconds, a second at most.
std::vector<TraceId> archived_traces(std::string_view session_id, size_t traces_max);
// The spans of these traces as an ExportTraceServiceRequest; of more than `bytes_max` the newest. Empty: there are
// none. Waits as archived_traces() does.
std::string archived_spans(std::span<const TraceId> traces, size_t bytes_max);

namespace internal {

// Thread-safe. Nothing is allocated before the first span.
class SpanArchive {
 public:
  // `resource`: an encoded Resource, see otlp/resource.h.
  SpanArchive(size_t bytes_max, std::string resource);

  // `session_id`: empty where the span names none. `scope` lives as long as the process. `span`: field 2 of a
  // ScopeSpans, its tag and length included.
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
  // A circle of entries, oldest first. Positions only grow.
  std::unique_ptr<std::byte[]> bytes_ TUFT_GUARDED_BY(mutex_);
  uint64_t begin_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t end_ TUFT_GUARDED_BY(mutex_) = 0;
};

// The tuft.session_id of a span as it lies in a ring; empty where it has none.
std::string_view session_of(const std::byte* record);

}  // namespace internal
}  // namespace tuft::telemetry
