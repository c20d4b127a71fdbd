// What of a user's request the store leaves out, as far as the request alone shows it, so that its sender can be told
// when the request is taken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tuft::telemetry_store {

struct Rejections {
  int64_t records = 0;  // 0: the store keeps all
  std::string reason;   // "2 larger than 1048576 bytes, 1 malformed"; empty if nothing is left out
};

// `request`: an encoded ExportTraceServiceRequest, ExportLogsServiceRequest or ExportMetricsServiceRequest. Takes time
// in proportion to its bytes, and copies nothing of it. Data points of more series than a user may have are not among
// the rejected: only the store's thread knows them.
Rejections rejected_spans(std::string_view request);
Rejections rejected_logs(std::string_view request);
Rejections rejected_points(std::string_view request);

}  // namespace tuft::telemetry_store
