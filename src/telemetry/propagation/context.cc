#include "telemetry/context.h"

#include <optional>

#include "telemetry/instruments/health.h"
#include "telemetry/propagation/context_headers.h"
#include "telemetry/record/recording.h"

namespace tuft::telemetry {
namespace {

constinit thread_local SpanContext t_current;

void append_digits(std::string& out, uint64_t value, int digits) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) out += kHex[(value >> shift) & 15];
}

// Accepts lower-case digits only, as W3C Trace Context requires.
std::optional<uint64_t> parse_hex(std::string_view text) {
  uint64_t value = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      value = (value << 4) | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = (value << 4) | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

constexpr size_t kVersionZeroLength = 55;

std::optional<SpanContext> parse_traceparent(std::string_view header) {
  if (header.size() < kVersionZeroLength) return std::nullopt;
  if (header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  const auto version = parse_hex(header.substr(0, 2));
  if (!version || *version == 0xff) return std::nullopt;
  // Version 00 ends here; a later version may continue after a dash.
  if (header.size() > kVersionZeroLength && (*version == 0 || header[kVersionZeroLength] != '-')) return std::nullopt;
  const auto high = parse_hex(header.substr(3, 16));
  const auto low = parse_hex(header.substr(19, 16));
  const auto span = parse_hex(header.substr(36, 16));
  const auto flags = parse_hex(header.substr(53, 2));
  if (!high || !low || !span || !flags) return std::nullopt;
  const SpanContext context{*high, *low, *span, static_cast<uint8_t>(*flags & 1)};
  if (!context.valid()) return std::nullopt;
  return context;
}

void count_malformed(std::string_view header) {
  internal::health_metrics().context_malformed.add(1, {{"header", header}});
}

}  // namespace

std::string SpanContext::trace_id_hex() const {
  std::string out;
  out.reserve(32);
  append_digits(out, trace_id_high, 16);
  append_digits(out, trace_id_low, 16);
  return out;
}

std::string SpanContext::span_id_hex() const {
  std::string out;
  append_digits(out, span_id, 16);
  return out;
}

SpanContext current_context() {
  return t_current;
}

ContextScope::ContextScope(const SpanContext& context) : previous_(t_current) {
  t_current = context;
}

ContextScope::~ContextScope() {
  t_current = previous_;
}

std::string to_traceparent(const SpanContext& context) {
  std::string out = "00-";
  out.reserve(kVersionZeroLength);
  append_digits(out, context.trace_id_high, 16);
  append_digits(out, context.trace_id_low, 16);
  out += '-';
  append_digits(out, context.span_id, 16);
  out += '-';
  append_digits(out, context.flags, 2);
  return out;
}

SpanContext from_traceparent(std::string_view header) {
  if (const auto context = parse_traceparent(header)) return *context;
  count_malformed("traceparent");
  return {};
}

std::string tracestate(const SpanContext& context) {
  return internal::carried_headers(context.carried).tracestate;
}

std::string baggage(const SpanContext& context) {
  return internal::carried_headers(context.carried).baggage;
}

SpanContext from_headers(const ContextHeaders& headers, Peer peer) {
  const bool ours = peer == Peer::kOwnProcess;
  SpanContext context;
  internal::CarriedHeaders carried;
  if (!headers.traceparent.empty() && (ours || internal::g_propagation.trace_context.load(std::memory_order_relaxed)))
    context = from_traceparent(headers.traceparent);
  // Headers that are not propagated need not be kept.
  if (!internal::recording()) return context;
  if (context.valid() && !headers.tracestate.empty()) {
    if (auto state = internal::parse_tracestate(headers.tracestate)) {
      carried.tracestate = std::move(*state);
    } else {
      count_malformed("tracestate");
    }
  }
  if (!headers.baggage.empty() && internal::g_propagation.baggage.load(std::memory_order_relaxed)) {
    if (auto bag = internal::parse_baggage(headers.baggage)) {
      carried.baggage = std::move(*bag);
    } else {
      count_malformed("baggage");
    }
  }
  context.carried = internal::carry_headers(std::move(carried));
  return context;
}

}  // namespace tuft::telemetry
