// The resource of this process, which the metrics page shows as the metric target_info. Internal to telemetry.
#pragma once

#include <string_view>

namespace tuft::telemetry::internal {

// Sets the resource from an encoded OTLP Resource (otlp/resource.h). Bytes that cannot be read change nothing.
// Thread-safe.
void set_target_info(std::string_view encoded_resource);

}  // namespace tuft::telemetry::internal
