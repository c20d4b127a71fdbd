// Trace context: the identity of a span, how it travels inside a thread and between processes (W3C Trace Context).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tuft::telemetry {

struct SpanContext {
  uint64_t trace_id_high = 0;
  uint64_t trace_id_low = 0;
  uint64_t span_id = 0;
  uint8_t flags = 0;

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

// Writes the headers through `set(std::string_view key, std::string value)`; nothing for an invalid context.
template <typename Setter>
void inject(const SpanContext& context, Setter&& set) {
  if (context.valid()) set(std::string_view("traceparent"), to_traceparent(context));
}

// Reads them through `get(std::string_view key) -> std::string_view`, which gives "" for an absent key.
template <typename Getter>
SpanContext extract(Getter&& get) {
  const std::string_view header = get(std::string_view("traceparent"));
  return header.empty() ? SpanContext{} : from_traceparent(header);
}

}  // namespace tuft::telemetry
