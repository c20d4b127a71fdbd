// The trace context: the identity of a span, passed on within a thread and between processes (W3C Trace Context and
// Baggage).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tuft::telemetry {

struct SpanContext {
  uint64_t trace_id_high = 0;
  uint64_t trace_id_low = 0;
  uint64_t span_id = 0;
  uint8_t flags = 0;
  // Identifies the tracestate and baggage of the trace; 0: none. Children inherit it. Valid in this process only.
  uint32_t carried = 0;
  // Identifies the share keys of the work (Span::share()); 0: none. Children inherit it. Valid in this process only.
  uint32_t keys = 0;

  bool valid() const { return (trace_id_high | trace_id_low) != 0 && span_id != 0; }
  bool sampled() const { return (flags & 1) != 0; }
  std::string trace_id_hex() const;  // 32 digits
  std::string span_id_hex() const;   // 16 digits
  friend bool operator==(const SpanContext&, const SpanContext&) = default;
};

// Returns the context of the calling thread's current span; an invalid one if there is none. Log records take their ids
// from it.
SpanContext current_context();

// Makes a context the current one of the calling thread until the end of the scope. Not for coroutines that may resume
// on another thread: pass the SpanContext on and open a scope around each synchronous part.
class ContextScope {
 public:
  explicit ContextScope(const SpanContext& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  SpanContext previous_;
};

// Returns "00-<trace id>-<span id>-<flags>".
std::string to_traceparent(const SpanContext& context);
// Returns an invalid context for a header that W3C Trace Context calls invalid. Such a header is counted in
// tuft.telemetry.context.malformed unless it is empty.
SpanContext from_traceparent(std::string_view header);

// Return the tracestate and the baggage that came with the context; "" if there is none, or if a few thousand newer
// headers have replaced them. A tracestate over 512 bytes is shortened as W3C requires. Baggage is kept only with
// telemetry.propagate_baggage.
std::string tracestate(const SpanContext& context);
std::string baggage(const SpanContext& context);

// The sender of headers. OTEL_PROPAGATORS applies to kOutside only; our own processes always propagate the context.
enum class Peer : uint8_t { kOutside, kOwnProcess };

struct ContextHeaders {
  std::string_view traceparent = {};
  std::string_view tracestate = {};
  std::string_view baggage = {};
};
// Ignores and counts malformed headers. A tracestate without a valid traceparent is ignored.
SpanContext from_headers(const ContextHeaders& headers, Peer peer);

// Calls `set(std::string_view key, std::string value)` for each header; does nothing for an invalid context.
template <typename Setter>
void inject(const SpanContext& context, Setter&& set) {
  if (!context.valid()) return;
  set(std::string_view("traceparent"), to_traceparent(context));
  if (context.carried == 0) return;
  if (std::string state = tracestate(context); !state.empty()) set(std::string_view("tracestate"), std::move(state));
  if (std::string bag = baggage(context); !bag.empty()) set(std::string_view("baggage"), std::move(bag));
}

// Reads the headers with `get(std::string_view key) -> std::string_view`, which returns "" for an absent key. The
// caller joins several headers of one name with commas.
template <typename Getter>
SpanContext extract(Getter&& get, Peer peer = Peer::kOutside) {
  return from_headers(
      {get(std::string_view("traceparent")), get(std::string_view("tracestate")), get(std::string_view("baggage"))},
      peer);
}

}  // namespace tuft::telemetry
