#include "telemetry_store/otlp_reader.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "telemetry_store/wire.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr std::string_view kUserKey = "tuft.user";
constexpr std::string_view kEventKey = "event.name";
// In the order of Key.
constexpr std::array<std::string_view, kKeys> kShareKeys = {"tuft.session_id",          "tuft.training_run_id",
                                                            "tuft.sampling_session_id", "tuft.request_id",
                                                            "tuft.operation_type",      "tuft.base_model"};
constexpr std::string_view kPrefix = "tuft.";

uint64_t big_endian(const char* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return __builtin_bswap64(value);
}

// Returns the text of an AnyValue that is a string.
std::string_view text_of(std::string_view any) {
  WireReader value(any);
  std::string_view text;
  while (value.next()) {
    if (value.field() == field::kAnyString) text = value.bytes();
  }
  return text;
}

struct KeyValueView {
  std::string_view key, value;
};

KeyValueView key_value_of(std::string_view bytes) {
  WireReader reader(bytes);
  KeyValueView out;
  while (reader.next()) {
    if (reader.field() == field::kKeyValueKey) out.key = reader.bytes();
    if (reader.field() == field::kKeyValueValue) out.value = reader.bytes();
  }
  return out;
}

void note_attribute(std::string_view bytes, RecordView& out) {
  const KeyValueView attribute = key_value_of(bytes);
  if (!attribute.key.starts_with(kPrefix)) return;
  if (attribute.key == kUserKey) {
    out.user = text_of(attribute.value);
    return;
  }
  for (size_t i = 0; i < kKeys; ++i) {
    if (attribute.key.size() == kShareKeys[i].size() && attribute.key == kShareKeys[i]) {
      out.keys[i] = text_of(attribute.value);
      return;
    }
  }
}

bool is_error(std::string_view status) {
  WireReader reader(status);
  bool failed = false;
  while (reader.next()) {
    if (reader.field() == field::kStatusCode) failed = reader.number() == kStatusError;
  }
  return failed;
}

std::string_view service_of(std::string_view resource) {
  constexpr uint32_t kAttributes = 1;
  WireReader reader(resource);
  size_t attributes = 0;
  while (reader.next() && attributes < kAttributesMax) {
    if (reader.field() != kAttributes) continue;
    ++attributes;
    const KeyValueView attribute = key_value_of(reader.bytes());
    if (attribute.key == "service.name") return text_of(attribute.value);
  }
  return {};
}

std::string_view name_of_scope(std::string_view scope) {
  WireReader reader(scope);
  std::string_view name;
  while (reader.next()) {
    if (reader.field() == 1) name = reader.bytes();
  }
  return name;
}

// Requests of traces and of logs have the same field numbers: 1 is the resource or the scope, 2 its contents.
constexpr uint32_t kHead = 1;
constexpr uint32_t kContents = 2;

std::string_view head_of(std::string_view message) {
  WireReader reader(message);
  while (reader.next()) {
    if (reader.field() == kHead) return reader.bytes();
  }
  return {};
}

template <typename View, typename Read, typename Visit>
size_t read_request(std::string_view request, Read read, const Visit& visit,
                    const std::function<void(std::string_view)>& visit_left_out) {
  size_t left_out = 0;
  WireReader resources(request);
  while (resources.next()) {
    if (resources.field() != 1) continue;
    ScopeView scope;
    scope.service = service_of_resource(resources.bytes());
    WireReader scopes(resources.bytes());
    while (scopes.next()) {
      if (scopes.field() != kContents) continue;
      scope.scope = name_of_scope(head_of(scopes.bytes()));
      WireReader records(scopes.bytes());
      while (records.next()) {
        if (records.field() != kContents) continue;
        View view;
        if (read(records.bytes(), view)) {
          visit(scope, view);
        } else {
          ++left_out;
          if (visit_left_out) visit_left_out(records.bytes());
        }
      }
      if (!records.ok()) ++left_out;
    }
    if (!scopes.ok()) ++left_out;
  }
  if (!resources.ok()) ++left_out;
  return left_out;
}

}  // namespace

std::string_view service_of_resource(std::string_view resource_records) {
  return service_of(head_of(resource_records));
}

TraceId trace_id_of(std::string_view bytes) {
  if (bytes.size() != 16) return {};
  return {big_endian(bytes.data()), big_endian(bytes.data() + 8)};
}

uint64_t span_id_of(std::string_view bytes) {
  return bytes.size() == 8 ? big_endian(bytes.data()) : 0;
}

bool read_span(std::string_view bytes, SpanView& out) {
  if (bytes.size() > kRecordBytesMax) return false;
  out.bytes = bytes;
  WireReader reader(bytes);
  Nanos end = 0;
  size_t attributes = 0;
  while (reader.next()) {
    switch (reader.field()) {
      case field::kSpanTrace:
        out.trace = trace_id_of(reader.bytes());
        break;
      case field::kSpanId:
        out.span = span_id_of(reader.bytes());
        break;
      case field::kSpanParent:
        out.parent = span_id_of(reader.bytes());
        break;
      case field::kSpanName:
        out.name = reader.bytes();
        break;
      case field::kSpanKind:
        out.kind = static_cast<int>(reader.number() & 7);
        break;
      case field::kSpanStart:
        out.start = nanos_of(reader.number());
        break;
      case field::kSpanEnd:
        end = nanos_of(reader.number());
        break;
      case field::kSpanAttributes:
        if (++attributes <= kAttributesMax) note_attribute(reader.bytes(), out);
        break;
      case field::kSpanLinks:
        ++out.links;
        break;
      case field::kSpanStatus:
        out.failed = is_error(reader.bytes());
        break;
      default:
        break;
    }
  }
  out.duration = std::max<Nanos>(0, end - out.start);
  return reader.ok() && out.trace.valid() && out.span != 0;
}

bool read_log(std::string_view bytes, LogView& out) {
  if (bytes.size() > kRecordBytesMax) return false;
  out.bytes = bytes;
  WireReader reader(bytes);
  Nanos observed = 0;
  size_t attributes = 0;
  std::string_view event_attribute;
  while (reader.next()) {
    switch (reader.field()) {
      case field::kLogTime:
        out.time = nanos_of(reader.number());
        break;
      case field::kLogObserved:
        observed = nanos_of(reader.number());
        break;
      case field::kLogSeverity:
        out.severity = static_cast<int>(std::min<uint64_t>(reader.number(), 24));
        break;
      case field::kLogAttributes:
        if (++attributes > kAttributesMax) break;
        note_attribute(reader.bytes(), out);
        if (const KeyValueView attribute = key_value_of(reader.bytes()); attribute.key == kEventKey)
          event_attribute = text_of(attribute.value);
        break;
      case field::kLogTrace:
        out.trace = trace_id_of(reader.bytes());
        break;
      case field::kLogSpan:
        out.span = span_id_of(reader.bytes());
        break;
      case field::kLogEvent:
        out.name = reader.bytes();
        break;
      default:
        break;
    }
  }
  if (out.time == 0) out.time = observed;
  // Programs whose library is older than the field send the attribute.
  if (out.name.empty()) out.name = event_attribute;
  return reader.ok();
}

size_t read_spans(std::string_view request, const std::function<void(const ScopeView&, const SpanView&)>& visit,
                  const std::function<void(std::string_view)>& left_out) {
  return read_request<SpanView>(request, read_span, visit, left_out);
}

size_t read_logs(std::string_view request, const std::function<void(const ScopeView&, const LogView&)>& visit,
                 const std::function<void(std::string_view)>& left_out) {
  return read_request<LogView>(request, read_log, visit, left_out);
}

void read_links(std::string_view span, const std::function<void(const TraceId&, uint64_t)>& visit) {
  WireReader reader(span);
  size_t links = 0;
  while (reader.next()) {
    if (reader.field() != field::kSpanLinks) continue;
    if (++links > kLinksMax) return;
    TraceId trace;
    uint64_t id = 0;
    WireReader link(reader.bytes());
    while (link.next()) {
      if (link.field() == field::kLinkTrace) trace = trace_id_of(link.bytes());
      if (link.field() == field::kLinkSpan) id = span_id_of(link.bytes());
    }
    if (trace.valid()) visit(trace, id);
  }
}

}  // namespace tuft::telemetry_store::internal
