// What a collector answers. Internal to telemetry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tuft::telemetry::internal::otlp {

// The partial_success of an ExportXxxServiceResponse; nothing rejected where there is none.
struct PartialSuccess {
  int64_t rejected = 0;
  std::string message;
};
PartialSuccess read_partial_success(std::string_view response);

// A google.rpc.Status, as gRPC sends it in its details and HTTP as the body of an error.
struct StatusDetails {
  std::string message;
  // From a RetryInfo: the server wants the same request again, after this long.
  bool has_retry_info = false;
  Nanos retry_after = 0;
};
StatusDetails read_status(std::string_view status);

// What somebody else wrote, short enough and printable, for a log line.
std::string message_for_people(std::string_view text);

}  // namespace tuft::telemetry::internal::otlp
