// The Resource of every request: the identity of this process. Internal to telemetry.
#pragma once

#include <string>

#include "telemetry/settings/settings.h"

namespace tuft::telemetry::internal::otlp {

// Returns an encoded Resource: service.name, service.version, service.instance.id (random, once per process),
// host.name, host.arch, host.cpu.model.name, process.pid and telemetry.sdk.*, overridden by the settings' attributes.
std::string encode_resource(const Settings& settings);

}  // namespace tuft::telemetry::internal::otlp
