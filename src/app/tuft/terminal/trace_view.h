// One trace as a waterfall: `tuft trace`.
#pragma once

#include <cstddef>

#include "app/tuft/terminal/json.h"
#include "app/tuft/terminal/text.h"

namespace tuft::terminal {

struct TraceViewOptions {
  size_t width = 100;            // at least 60 are used
  size_t spans_max = 200;        // the rest is counted in one line
  bool block_characters = true;  // bars of "█" instead of "#"
};

// `trace`: the answer of /api/v1/observe/traces/{trace_id}. The lines are a head, why the trace took its time, and for
// each span its name, its bar and its duration. "*" marks the spans of the critical path, "!" failed ones. Log records
// stand below their span.
Lines trace_lines(const Json& trace, const TraceViewOptions& options);

}  // namespace tuft::terminal
