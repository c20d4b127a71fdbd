// Who the calling thread is in a request trace. Internal to telemetry.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "telemetry/context.h"
#include "telemetry/trace.h"

namespace tuft::telemetry::internal {

// Of the request tracing spans.
Tracer request_tracer();

// Never given to another thread, unlike the operating system's id.
uint64_t this_thread_key();

// See trace_set_thread_info().
bool set_thread_info(std::string_view label, std::optional<int> tp_rank, std::optional<int> dp_rank);

// The calling thread's span below `root`; `start` in Clock::monotonic() terms.
Span start_thread_span(const SpanContext& root, Nanos start);

// $FD_HOST_NAME, else the machine's id, else a network card's address, else random. Read once.
std::string_view host_id();

// In a child of fork(): the calling thread is another one now.
void forget_thread_info();

}  // namespace tuft::telemetry::internal
