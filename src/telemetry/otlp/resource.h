// Who speaks: the Resource of every request. Internal to telemetry.
#pragma once

#include <string>

#include "telemetry/settings.h"

namespace tuft::telemetry::internal::otlp {

// An encoded Resource: service.name, service.version, service.instance.id (random, once a process), host.name,
// process.pid, telemetry.sdk.*, and over them the settings' attributes.
std::string encode_resource(const Settings& settings);

}  // namespace tuft::telemetry::internal::otlp
