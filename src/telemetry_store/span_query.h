// The queries about spans. Internal to telemetry_store.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry_store/query.h"
#include "telemetry_store/segment.h"

namespace tuft::telemetry_store::internal {

using Segments = std::vector<std::shared_ptr<const Segment>>;

inline constexpr size_t kTracesMax = 1000;
inline constexpr size_t kGroupsMax = 20;
inline constexpr size_t kStepsMax = 2000;
inline constexpr size_t kSpansMax = 100'000;
inline constexpr size_t kLogsOfTraceMax = 10'000;
inline constexpr size_t kLinkedFromMax = 1000;

Result<TracePage> find_traces(const Segments& segments, const Viewer& viewer, const Filter& filter, const PageOf& page,
                              const Clock& clock);
Result<DurationHistogram> find_durations(const Segments& segments, const Viewer& viewer, const Filter& filter,
                                         const Clock& clock);
Result<SpanSeries> find_span_series(const Segments& segments, const Viewer& viewer, const Filter& filter,
                                    SpanFunction function, std::string_view by, Nanos step, const Clock& clock);
Result<Trace> read_trace(const Segments& segments, const Viewer& viewer, std::string_view trace_id, size_t spans_max,
                         const Clock& clock);

}  // namespace tuft::telemetry_store::internal
