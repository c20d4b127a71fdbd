// Spans. Recording one costs a few stores into memory of this thread: no lock, no allocation, no exporter. A span is
// complete when it ends; then it goes into this thread's ring, from which the telemetry thread takes it.
//
//   const Tracer tracer = get_tracer("tuft.my_module");
//   Span span = tracer.start_span("my_operation", {.attributes = {{"tuft.session_id", session_id}}});
//   span.set_attribute("tuft.tokens", tokens);
//   if (!status.ok()) span.record_error(status.error());
//
// With telemetry off, and in traces that are not sampled (the parent says so, or OTEL_TRACES_SAMPLER for a root), all
// of it does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "telemetry/attribute.h"
#include "telemetry/context.h"

namespace tuft::telemetry {

enum class SpanKind : uint8_t { kInternal, kServer, kClient, kProducer, kConsumer };

struct SpanOptions {
  Attributes attributes = {};
  // Parent; by default current_context(). An invalid one makes a new root.
  SpanContext parent = current_context();
  SpanKind kind = SpanKind::kInternal;
  // A span of another trace that this one belongs with, e.g. the operation that a poll delivered.
  SpanContext link = {};
  // Start in Clock::monotonic() terms; 0 is now.
  Nanos start = 0;
};

struct SpanRecord;

// Move-only; ends when destroyed. Confined to one thread at a time; may move between threads.
class Span {
 public:
  Span();  // records nothing
  Span(Span&&) noexcept;
  Span& operator=(Span&&) noexcept;
  ~Span();

  bool recording() const { return record_ != nullptr; }
  // Valid also where the trace is not sampled, so that it can be passed on.
  const SpanContext& context() const { return context_; }

  // A key set twice keeps the last value. At most 32 attributes and 2 KiB of strings a span; what is over is counted
  // in the span's dropped attributes. Strings are cut at 512 bytes.
  void set_attribute(Name key, AttributeValue value);
  void set_attributes(Attributes attributes);
  // Now, or at `at` in Clock::monotonic() terms.
  void add_event(Name name, Attributes attributes = {}, Nanos at = 0);
  // Another span that this one belongs with. At most 31 besides the one of the start; what is over is counted in the
  // span's dropped links.
  void add_link(const SpanContext& link);
  // Status ERROR with the message, error.type = the code's name, and one exception event, however often it is called.
  void record_error(const Error& error);
  // For a name known only after the start (an HTTP route); `name` as in Name.
  void update_name(Name name);
  // A name with an id in it, which request tracing asks for; everything else keeps names of a closed set. Copied.
  void set_dynamic_name(std::string_view name);
  // Ends it now, or at `at` in Clock::monotonic() terms. Further calls do nothing.
  void end(Nanos at = 0);

 private:
  friend class Tracer;
  SpanRecord* record_ = nullptr;  // owned; from this thread's pool
  SpanContext context_;
};

// Cheap to copy. Keep it in a static or a member: looking one up by name takes a lock.
class Tracer {
 public:
  Span start_span(Name name, const SpanOptions& options = {}) const;

 private:
  friend Tracer get_tracer(Name scope);
  explicit Tracer(Name scope) : scope_(scope) {}
  Name scope_;
};

Tracer get_tracer(Name scope);

}  // namespace tuft::telemetry
