// Lists of traces, of log records and of workers: `tuft traces`, `tuft logs`, `tuft workers`.
#pragma once

#include <cstddef>

#include "app/tuft/terminal/json.h"
#include "app/tuft/terminal/text.h"

namespace tuft::terminal {

// `traces`: a list of traces as /api/v1/observe/traces answers it. "!" marks traces with failed spans. `width` 0: any.
Lines trace_list_lines(const Json& traces, size_t width);

// `workers`: as /api/v1/observe/workers answers them.
Lines worker_list_lines(const Json& workers, size_t width);

// A log record of /api/v1/observe/logs in one line: time, level, service, event, text, attributes without code.*,
// trace.
Line log_line(const Json& record);

// Of a worker, in the words of docs/scaling.md: "ready" is green, "dead" red, "standby" plain; all others are yellow.
Style style_of_state(const std::string& state);

// "debug" is dim, "warning" yellow, "error" red.
Style style_of_level(const std::string& level);

}  // namespace tuft::terminal
