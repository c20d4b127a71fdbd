// The critical path of a trace: which span was responsible for each moment between its start and its end.
#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "telemetry_store/query.h"

namespace tuft::control {

struct PathPiece {
  size_t span = 0;  // its place in Trace::spans
  Nanos start = 0, duration = 0;
};

// Goes backwards from the end: of the children of a span the one that ended last was responsible, until its own start;
// before that the child that was active last, and so on. What no child covers is the span's own. A span ends with its
// last descendant, because operations outlive the request that submitted them. The pieces are in the order of time and
// do not overlap; between several roots there may be gaps. Spans whose parents form a circle are left out. The time
// is that of sorting the spans.
std::vector<PathPiece> critical_path(const telemetry_store::Trace& trace);

}  // namespace tuft::control
