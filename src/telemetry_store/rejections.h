// What the store leaves out of what a user sends, so that the sender can be told.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tuft::telemetry_store {

struct Rejections {
  int64_t records = 0;  // 0: the store keeps all
  std::string reason;   // "2 larger than 1048576 bytes, 1 malformed"; empty if nothing is left out

  void add(int64_t more, std::string_view why) {
    records += more;
    reason.append(reason.empty() ? "" : ", ").append(std::to_string(more)).append(" ").append(why);
  }
};

// What the request alone shows, before it is queued. `request`: an encoded ExportTraceServiceRequest,
// ExportLogsServiceRequest or ExportMetricsServiceRequest. Takes time in proportion to its bytes, and copies nothing of
// it. Data points for whose series the store has no place are not among the rejected: only the store's thread knows
// them (Store::take_refused_points).
Rejections rejected_spans(std::string_view request);
Rejections rejected_logs(std::string_view request);
Rejections rejected_points(std::string_view request);

}  // namespace tuft::telemetry_store
