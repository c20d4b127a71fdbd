// Parses the responses of a collector. Internal to telemetry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tuft::telemetry::internal::otlp {

// The partial_success of an ExportXxxServiceResponse; `rejected` is 0 if there is none.
struct PartialSuccess {
  int64_t rejected = 0;
  std::string message;
};
PartialSuccess read_partial_success(std::string_view response);

// A google.rpc.Status, from the details of a gRPC status or the body of an HTTP error.
struct StatusDetails {
  std::string message;
  // The time after which the server accepts the same request again, from a RetryInfo.
  bool has_retry_info = false;
  Nanos retry_after = 0;
};
StatusDetails read_status(std::string_view status);

// Returns text from outside shortened and printable, for a log line.
std::string message_for_people(std::string_view text);

}  // namespace tuft::telemetry::internal::otlp
