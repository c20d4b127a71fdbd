// The trace of one session as a file, made from the spans that several processes kept.
//
// One JSON object that two kinds of tools read: "resourceSpans" is OTLP JSON (Jaeger's upload, collectors), and
// "traceEvents" is the Trace Event Format (ui.perfetto.dev, chrome://tracing).
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

// Returns the spans of the session in `requests`, which are results of archived_spans() of several processes. Bytes
// that cannot be read are left out.
//
// The result contains the session's own spans only. Clients choose trace ids and may share a trace, so a span belongs
// to the session if it names it in tuft.session_id; or, if it names none, if the nearest span above it that names a
// session names this one; or, if there is none above, if all spans below it that name a session name this one. Links to
// spans that are not in the file are left out, and so are counts of other adapters in a shared pass.
SessionTrace make_session_trace(std::string_view session_id, std::span<const std::string> requests);

}  // namespace tuft::telemetry
