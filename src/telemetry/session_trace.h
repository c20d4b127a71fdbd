// The trace of one session as a file for people: its spans out of what several processes kept.
//
// One JSON object that two kinds of tools read: "resourceSpans" is OTLP JSON (Jaeger's upload, collectors), and
// "traceEvents" the Trace Event Format (ui.perfetto.dev, chrome://tracing).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tuft::telemetry {

struct SessionTrace {
  std::string json;
  size_t spans = 0;  // 0: `json` is empty
};

// `requests`: what archived_spans() gave, of any process; what cannot be read is left out.
//
// Only what is the session's own is in it. Clients choose trace ids, and a trace may be shared, so a span belongs to
// the session if it names it in tuft.session_id, or, naming none, if the nearest span above that names one names it,
// or, with none above, if all spans below that name one name it. Links to spans that are not in the file are left out,
// and so is what counts other adapters of a pass that several share.
SessionTrace make_session_trace(std::string_view session_id, std::span<const std::string> requests);

}  // namespace tuft::telemetry
