// Searches of log records. Internal to telemetry_store.
#pragma once

#include "telemetry_store/span_query.h"

namespace tuft::telemetry_store::internal {

inline constexpr size_t kLogsMax = 1000;

Result<LogPage> find_logs(const Segments& segments, const Viewer& viewer, const LogQuery& query, const Clock& clock);

}  // namespace tuft::telemetry_store::internal
