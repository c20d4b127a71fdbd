#pragma once

#include "telemetry/trace.h"

namespace tuft::actor {

// Makes the spans of the lives of workers.
inline telemetry::Tracer actor_tracer() {
  static const telemetry::Tracer tracer = telemetry::get_tracer("tuft.actor");
  return tracer;
}

}  // namespace tuft::actor
