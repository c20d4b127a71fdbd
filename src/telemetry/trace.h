// Spans. Recording a span costs a few stores into memory of the calling thread: no lock, no allocation, no exporter.
// When a span ends it is copied into the thread's ring, from which the telemetry thread takes it.
//
//   const Tracer tracer = get_tracer("tuft.my_module");
//   Span span = tracer.start_span("my_operation", {.attributes = {{"tuft.session_id", session_id}}});
//   span.set_attribute("tuft.tokens", tokens);
//   if (!status.ok()) span.record_error(status.error());
//
// All of this does nothing while telemetry is off and in traces that are not sampled. The parent decides on sampling;
// for a root, OTEL_TRACES_SAMPLER does.
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
  // The parent; by default current_context(). An invalid one makes a new root.
  SpanContext parent = current_context();
  SpanKind kind = SpanKind::kInternal;
  // A related span of another trace, for instance of the operation whose result a poll delivered.
  SpanContext link = {};
  // The start as Clock::monotonic() time; 0: now.
  Nanos start = 0;
  // False: neither the span nor what is made below it is recorded, unless a sampler asks for all spans.
  bool record = true;
};

struct SpanRecord;

// Move-only. The destructor ends the span. Not thread-safe, but may move between threads.
class Span {
 public:
  Span();  // records nothing
  Span(Span&&) noexcept;
  Span& operator=(Span&&) noexcept;
  ~Span();

  bool recording() const { return record_ != nullptr; }
  // Valid even if the trace is not sampled, so that it can be passed on.
  const SpanContext& context() const { return context_; }

  // Setting a key again replaces its value. A span has at most 32 attributes and 2 KiB of strings; further attributes
  // are counted as dropped. Strings are cut at 512 bytes.
  void set_attribute(Name key, AttributeValue value);
  void set_attributes(Attributes attributes);
  // Sets share keys, ids by which one finds all that belongs together. They become attributes of this span and of every
  // span and log record that is made below it in this process from now on, beside the keys that it has from above. A
  // record that has a value of its own for a key keeps that. Only texts are taken, at most 6 of 256 bytes. Recording a
  // span below costs nothing more for them: they are kept once, and are written when the span is encoded. They are
  // kept while this span runs, and afterwards among the newest 16384. Call it once for each piece of work, before
  // context() is passed on.
  void share(Attributes keys);
  // Shares the keys of `other`, for instance of the operation that a request has submitted. They are kept while the
  // span runs that shared them there.
  void share(const SpanContext& other);
  // Adds an event at `at`, a Clock::monotonic() time; 0: now.
  void add_event(Name name, Attributes attributes = {}, Nanos at = 0);
  // Links a related span. A span has at most 31 links besides the one of its start; further links are counted as
  // dropped.
  void add_link(const SpanContext& link);
  // Sets the status to ERROR with the message, and error.type to the name of the code; adds one exception event,
  // however often it is called.
  void record_error(const Error& error);
  // Replaces the name, for a name that is known only after the start (an HTTP route).
  void update_name(Name name);
  // Replaces the name by one that contains an id, as request tracing needs. All other names come from closed sets.
  // Copies `name`.
  void set_dynamic_name(std::string_view name);
  // Ends the span at `at`, a Clock::monotonic() time; 0: now. Further calls do nothing.
  void end(Nanos at = 0);

 private:
  friend class Tracer;
  SpanRecord* record_ = nullptr;  // owned; from this thread's pool
  SpanContext context_;
};

// Share keys, as Span::share() gives them, for work that no running span of this process covers: its context came from
// another process, its span is made at its end, or only roots are below it (an invalid context). They are kept as long
// as this lives, and afterwards among the newest 16384. Does nothing while telemetry is off.
// Move-only. Not thread-safe, but may move between threads.
class SharedKeys {
 public:
  SharedKeys() = default;  // keeps nothing
  SharedKeys(const SpanContext& above, Attributes keys);
  SharedKeys(SharedKeys&&) noexcept;
  SharedKeys& operator=(SharedKeys&&) noexcept;
  ~SharedKeys();

  // Returns the context `above` with the keys, for what is made below it.
  const SpanContext& context() const { return context_; }

 private:
  SpanContext context_;
  uint32_t number_ = 0;  // of the set; 0: none
};

// Returns `context` with share keys that are among the newest 16384 from the start: for work that is over at once.
SpanContext share(const SpanContext& context, Attributes keys);

// Cheap to copy. Keep a tracer in a static or a member: get_tracer() takes a lock.
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
