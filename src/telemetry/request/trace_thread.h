// The identity of the calling thread in request traces. Internal to telemetry.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "telemetry/context.h"
#include "telemetry/trace.h"

namespace tuft::telemetry::internal {

// Returns the tracer of the spans of request tracing.
Tracer request_tracer();

// Returns a key that is never reused by another thread, unlike the operating system's thread id.
uint64_t this_thread_key();

// See trace_set_thread_info().
bool set_thread_info(std::string_view label, std::optional<int> tp_rank, std::optional<int> dp_rank);

// Starts the calling thread's span below `root`; `start` is a Clock::monotonic() time.
Span start_thread_span(const SpanContext& root, Nanos start);

// Returns $FD_HOST_NAME, else the machine's id, else a network card's address, else a random id. Read once.
std::string_view host_id();

// Forgets the calling thread's identity. For a child of fork().
void forget_thread_info();

}  // namespace tuft::telemetry::internal
