#include "telemetry/trace.h"

namespace tuft::telemetry {

Span::Span() = default;
Span::Span(Span&&) noexcept = default;
Span& Span::operator=(Span&&) noexcept = default;
Span::~Span() = default;
void Span::set_attribute(Name, AttributeValue) {}
void Span::set_attributes(Attributes) {}
void Span::add_event(Name, Attributes) {}
void Span::record_error(const Error&) {}
void Span::update_name(Name) {}
void Span::end(Nanos) {}

Span Tracer::start_span(Name, const SpanOptions& options) const {
  Span span;
  span.context_ = options.parent;
  return span;
}

Tracer get_tracer(Name scope) { return Tracer(scope); }

}  // namespace tuft::telemetry
