// Internal to telemetry.
#pragma once

#include <string>
#include <string_view>

namespace tuft::telemetry::internal::otlp {

// As HTTP's "Content-Encoding: gzip" wants it; empty where that failed.
std::string gzip(std::string_view bytes);

}  // namespace tuft::telemetry::internal::otlp
