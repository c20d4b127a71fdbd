// Compression of requests. Internal to telemetry.
#pragma once

#include <string>
#include <string_view>

namespace tuft::telemetry::internal::otlp {

// Returns `bytes` in the format of HTTP's "Content-Encoding: gzip"; empty if compression failed.
std::string gzip(std::string_view bytes);

}  // namespace tuft::telemetry::internal::otlp
