// Trace context: the identity of a span, how it travels inside a thread and between processes (W3C Trace Context and
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
  // What else came with it, tracestate and baggage; 0: nothing. Children inherit it. Of no use outside this process.
  uint32_t carried = 0;

  bool valid() const { return (trace_id_high | trace_id_low) != 0 && span_id != 0; }
  bool sampled() const { return (flags & 1) != 0; }
  std::string trace_id_hex() const;  // 32 digits
  std::string span_id_hex() const;   // 16 digits
  friend bool operator==(const SpanContext&, const SpanContext&) = default;
};

// The span that this thread works for; invalid where there is none. Logs take their ids from it.
SpanContext current_context();

// Makes a context current on this thread until the end of the scope. Not for coroutines that may resume elsewhere:
// pass the SpanContext on and open a scope around each synchronous piece.
class ContextScope {
 public:
  explicit ContextScope(const SpanContext& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  SpanContext previous_;
};

// "00-<trace id>-<span id>-<flags>".
std::string to_traceparent(const SpanContext& context);
// Invalid for anything that W3C Trace Context calls invalid. Counted in tuft.telemetry.context.malformed where the
// header was there at all.
SpanContext from_traceparent(std::string_view header);

// What the context carries; "" for nothing, and for what came so long ago that a few thousand others came since.
// tracestate: as it came, shortened as W3C asks where it was over 512 bytes. baggage: where
// telemetry.propagate_baggage.
std::string tracestate(const SpanContext& context);
std::string baggage(const SpanContext& context);

// The sender of headers. OTEL_PROPAGATORS is about the outside; our own processes always understand each other.
enum class Peer : uint8_t { kOutside, kOwnProcess };

struct ContextHeaders {
  std::string_view traceparent = {};
  std::string_view tracestate = {};
  std::string_view baggage = {};
};
// A header that is malformed is ignored and counted; a tracestate without a valid traceparent is nothing.
SpanContext from_headers(const ContextHeaders& headers, Peer peer);

// Writes the headers through `set(std::string_view key, std::string value)`; nothing for an invalid context.
template <typename Setter>
void inject(const SpanContext& context, Setter&& set) {
  if (!context.valid()) return;
  set(std::string_view("traceparent"), to_traceparent(context));
  if (context.carried == 0) return;
  if (std::string state = tracestate(context); !state.empty()) set(std::string_view("tracestate"), std::move(state));
  if (std::string bag = baggage(context); !bag.empty()) set(std::string_view("baggage"), std::move(bag));
}

// Reads them through `get(std::string_view key) -> std::string_view`, which gives "" for an absent key. Several headers
// of one name are to be joined with commas.
template <typename Getter>
SpanContext extract(Getter&& get, Peer peer = Peer::kOutside) {
  return from_headers(
      {get(std::string_view("traceparent")), get(std::string_view("tracestate")), get(std::string_view("baggage"))},
      peer);
}

}  // namespace tuft::telemetry
