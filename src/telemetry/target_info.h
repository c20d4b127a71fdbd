// The resource of this process, which scrapers get as the metric target_info. Internal to telemetry.
#pragma once

#include <string_view>

namespace tuft::telemetry::internal {

// An encoded OTLP Resource, see otlp/resource.h. Thread-safe; what cannot be read changes nothing.
void set_target_info(std::string_view encoded_resource);

}  // namespace tuft::telemetry::internal
