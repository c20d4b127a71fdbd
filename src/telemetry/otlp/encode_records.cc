#include "telemetry/otlp/encode_records.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "telemetry/log/log_line.h"
#include "telemetry/record/share_keys.h"

namespace tuft::telemetry::internal::otlp {
namespace {

// Field numbers of opentelemetry/proto/trace/v1/trace.proto, logs.proto and common.proto.
namespace span_field {
constexpr uint32_t kTraceId = 1;
constexpr uint32_t kSpanId = 2;
constexpr uint32_t kTraceState = 3;
constexpr uint32_t kParentSpanId = 4;
constexpr uint32_t kName = 5;
constexpr uint32_t kKind = 6;
constexpr uint32_t kStart = 7;
constexpr uint32_t kEnd = 8;
constexpr uint32_t kAttributes = 9;
constexpr uint32_t kDroppedAttributes = 10;
constexpr uint32_t kEvents = 11;
constexpr uint32_t kDroppedEvents = 12;
constexpr uint32_t kLinks = 13;
constexpr uint32_t kDroppedLinks = 14;
constexpr uint32_t kStatus = 15;
constexpr uint32_t kFlags = 16;
}  // namespace span_field
namespace event_field {
constexpr uint32_t kTime = 1;
constexpr uint32_t kName = 2;
constexpr uint32_t kAttributes = 3;
}  // namespace event_field
namespace link_field {
constexpr uint32_t kTraceId = 1;
constexpr uint32_t kSpanId = 2;
constexpr uint32_t kTraceState = 3;
constexpr uint32_t kFlags = 6;
}  // namespace link_field
namespace status_field {
constexpr uint32_t kMessage = 2;
constexpr uint32_t kCode = 3;
}  // namespace status_field
namespace log_field {
constexpr uint32_t kTime = 1;
constexpr uint32_t kSeverityNumber = 2;
constexpr uint32_t kSeverityText = 3;
constexpr uint32_t kBody = 5;
constexpr uint32_t kAttributes = 6;
constexpr uint32_t kFlags = 8;
constexpr uint32_t kTraceId = 9;
constexpr uint32_t kSpanId = 10;
constexpr uint32_t kObservedTime = 11;
constexpr uint32_t kEventName = 12;
}  // namespace log_field
constexpr uint32_t kStatusError = 2;
// AnyValue.
constexpr uint32_t kString = 1;
constexpr uint32_t kBool = 2;
constexpr uint32_t kInt = 3;
constexpr uint32_t kDouble = 4;

// The maximum size of a tag and a length, or of a tag and a number.
constexpr size_t kFieldBytesMax = 16;

// Reads the parts of a record in order.
class RecordReader {
 public:
  explicit RecordReader(const std::byte* record) : at_(record + sizeof(RecordHeader)) {}

  template <typename T>
  const T* take(size_t count) {
    const T* items = reinterpret_cast<const T*>(at_);
    at_ += count * sizeof(T);
    return items;
  }

 private:
  const std::byte* at_;
};

char* put_id(char* out, uint32_t field, uint64_t id) {
  *out++ = static_cast<char>(tag(field, WireType::kBytes));
  *out++ = 8;
  return WireWriter::put_raw(out, __builtin_bswap64(id));
}

char* put_trace_id(char* out, uint32_t field, const SpanContext& context) {
  *out++ = static_cast<char>(tag(field, WireType::kBytes));
  *out++ = 16;
  out = WireWriter::put_raw(out, __builtin_bswap64(context.trace_id_high));
  return WireWriter::put_raw(out, __builtin_bswap64(context.trace_id_low));
}

template <typename T>
char* put_fixed(char* out, uint32_t field, T value) {
  out = WireWriter::put_varint(out, tag(field, sizeof(T) == 8 ? WireType::kFixed64 : WireType::kFixed32));
  return WireWriter::put_raw(out, value);
}

// Writes the start of a KeyValue, up to the value, whose AnyValue takes `value_bytes`.
char* open_attribute(char* out, uint32_t field, std::string_view key, size_t value_bytes) {
  const size_t key_bytes = 1 + varint_size(key.size()) + key.size();
  *out++ = static_cast<char>(tag(field, WireType::kBytes));
  out = WireWriter::put_varint(out, key_bytes + 1 + varint_size(value_bytes) + value_bytes);
  *out++ = static_cast<char>(tag(1, WireType::kBytes));
  out = WireWriter::put_varint(out, key.size());
  out = WireWriter::put_bytes(out, key);
  *out++ = static_cast<char>(tag(2, WireType::kBytes));
  return WireWriter::put_varint(out, value_bytes);
}

void put_text_attribute(WireWriter& writer, uint32_t field, std::string_view raw_key, std::string_view raw_value) {
  std::string repaired_key;
  std::string repaired_value;
  const std::string_view key = clean_utf8(raw_key, repaired_key);
  const std::string_view value = clean_utf8(raw_value, repaired_value);
  char* out = writer.room(4 * kFieldBytesMax + key.size() + value.size());
  out = open_attribute(out, field, key, 1 + varint_size(value.size()) + value.size());
  *out++ = static_cast<char>(tag(kString, WireType::kBytes));
  out = WireWriter::put_varint(out, value.size());
  writer.set_end(WireWriter::put_bytes(out, value));
}

void put_int_attribute(WireWriter& writer, uint32_t field, std::string_view raw_key, int64_t value) {
  std::string repaired;
  const std::string_view key = clean_utf8(raw_key, repaired);
  const auto bits = static_cast<uint64_t>(value);
  char* out = writer.room(4 * kFieldBytesMax + key.size());
  out = open_attribute(out, field, key, 1 + varint_size(bits));
  *out++ = static_cast<char>(tag(kInt, WireType::kVarint));
  writer.set_end(WireWriter::put_varint(out, bits));
}

void put_attribute(WireWriter& writer, uint32_t field, const AttributeSlot& slot, const char* strings) {
  if (slot.kind == AttributeValue::Kind::kString)
    return put_text_attribute(writer, field, slot.key.view(), {strings + slot.as_string.offset, slot.as_string.size});
  if (slot.kind == AttributeValue::Kind::kInt) return put_int_attribute(writer, field, slot.key.view(), slot.as_int);
  std::string repaired;
  const std::string_view key = clean_utf8(slot.key.view(), repaired);
  char* out = writer.room(4 * kFieldBytesMax + key.size());
  if (slot.kind == AttributeValue::Kind::kBool) {
    out = open_attribute(out, field, key, 2);
    *out++ = static_cast<char>(tag(kBool, WireType::kVarint));
    *out++ = static_cast<char>(slot.as_int != 0);
  } else {
    out = open_attribute(out, field, key, 9);
    *out++ = static_cast<char>(tag(kDouble, WireType::kFixed64));
    out = WireWriter::put_raw(out, std::bit_cast<uint64_t>(slot.as_double));
  }
  writer.set_end(out);
}

// Writes the inherited keys that the record does not have itself.
void put_share_keys(WireWriter& writer, uint32_t field, const ShareKeys* keys, const AttributeSlot* own,
                    uint32_t own_count) {
  if (keys == nullptr) return;
  for (size_t i = 0; i < keys->count; ++i) {
    const std::string_view key = keys->keys[i];
    const bool is_own = std::any_of(own, own + own_count, [key](const AttributeSlot& slot) {
      return slot.key.size == key.size() &&
             (slot.key.data == key.data() || std::memcmp(slot.key.data, key.data(), key.size()) == 0);
    });
    if (!is_own) put_text_attribute(writer, field, key, keys->value(i));
  }
}

void put_events(WireWriter& writer, const SpanHead& head, const EventSlot* events, const AttributeSlot* attributes,
                const char* strings, Nanos offset) {
  for (uint32_t i = 0; i < head.event_count; ++i) {
    const EventSlot& event = events[i];
    const size_t start = writer.open(span_field::kEvents);
    writer.fixed64(event_field::kTime, static_cast<uint64_t>(event.time + offset));
    writer.text(event_field::kName, event.name.view());
    for (uint32_t a = 0; a < event.attribute_count; ++a)
      put_attribute(writer, event_field::kAttributes, attributes[event.first_attribute + a], strings);
    writer.close(start);
  }
}

void put_trace_state(WireWriter& writer, uint32_t field, const SpanContext& context) {
  if (context.carried == 0) return;
  const std::string state = tracestate(context);
  if (!state.empty()) writer.text(field, state);
}

void put_link(WireWriter& writer, const SpanContext& link) {
  const size_t start = writer.open(span_field::kLinks);
  char* out = writer.room(64);
  out = put_trace_id(out, link_field::kTraceId, link);
  out = put_id(out, link_field::kSpanId, link.span_id);
  writer.set_end(put_fixed(out, link_field::kFlags, uint32_t{link.flags}));
  put_trace_state(writer, link_field::kTraceState, link);
  writer.close(start);
}

void put_span_head(WireWriter& writer, const SpanHead& head, const char* strings, Nanos offset) {
  constexpr size_t kHeadBytesMax = 128;
  std::string_view name = head.name.view();
  if (head.dynamic_name.size != 0) name = {strings + head.dynamic_name.offset, head.dynamic_name.size};
  std::string repaired;
  name = clean_utf8(name, repaired);
  char* out = writer.room(kHeadBytesMax + name.size());
  out = put_trace_id(out, span_field::kTraceId, head.context);
  out = put_id(out, span_field::kSpanId, head.context.span_id);
  if (head.parent_span_id != 0) out = put_id(out, span_field::kParentSpanId, head.parent_span_id);
  *out++ = static_cast<char>(tag(span_field::kName, WireType::kBytes));
  out = WireWriter::put_varint(out, name.size());
  out = WireWriter::put_bytes(out, name);
  *out++ = static_cast<char>(tag(span_field::kKind, WireType::kVarint));
  // OTLP numbers the kinds from 1, in the same order.
  *out++ = static_cast<char>(static_cast<int>(head.kind) + 1);
  out = put_fixed(out, span_field::kStart, static_cast<uint64_t>(head.start + offset));
  out = put_fixed(out, span_field::kEnd, static_cast<uint64_t>(head.end + offset));
  writer.set_end(put_fixed(out, span_field::kFlags, uint32_t{head.context.flags}));
  put_trace_state(writer, span_field::kTraceState, head.context);
}

// Severity numbers and names of the logs data model.
uint32_t severity_number(Severity severity) {
  return 5 + 4 * static_cast<uint32_t>(severity);
}

std::string_view severity_text(Severity severity) {
  return severity == Severity::kWarning ? std::string_view("WARN") : severity_name(severity);
}

}  // namespace

WireWriter& RecordEncoder::scope(std::string_view name) {
  if (last_scope_ < scopes_.size() && scopes_[last_scope_]->key.data() == name.data()) [[likely]]
    return scopes_[last_scope_]->records;
  for (last_scope_ = 0; last_scope_ < scopes_.size(); ++last_scope_) {
    if (scopes_[last_scope_]->key == name) return scopes_[last_scope_]->records;
  }
  scopes_.push_back(std::make_unique<Scope>());
  scopes_.back()->key = name;
  scopes_.back()->name = to_utf8(name);
  return scopes_.back()->records;
}

// Spans of one operation often follow each other.
const ShareKeys* RecordEncoder::keys_of(const SpanContext& context) {
  if (context.keys != last_keys_number_) {
    last_keys_number_ = context.keys;
    last_keys_ = kept_share_keys(context.keys);
  }
  return last_keys_.get();
}

std::string_view RecordEncoder::add_span(const std::byte* record, Nanos wall_offset) {
  RecordReader reader(record);
  const SpanHead& head = *reader.take<SpanHead>(1);
  const auto* attributes = reader.take<AttributeSlot>(head.attribute_count);
  const auto* events = reader.take<EventSlot>(head.event_count);
  const auto* event_attributes = reader.take<AttributeSlot>(head.event_attribute_count);
  const auto* more_links = reader.take<SpanContext>(head.more_link_count);
  const char* strings = reader.take<char>(head.string_bytes);

  WireWriter& writer = scope(head.scope.view());
  const size_t before = writer.size();
  const size_t start = writer.open(2);
  put_span_head(writer, head, strings, wall_offset);
  for (uint32_t i = 0; i < head.attribute_count; ++i)
    put_attribute(writer, span_field::kAttributes, attributes[i], strings);
  put_share_keys(writer, span_field::kAttributes, keys_of(head.context), attributes, head.attribute_count);
  if (head.dropped_attributes != 0) writer.varint(span_field::kDroppedAttributes, head.dropped_attributes);
  if (head.event_count != 0) put_events(writer, head, events, event_attributes, strings, wall_offset);
  if (head.dropped_events != 0) writer.varint(span_field::kDroppedEvents, head.dropped_events);
  if (head.link.valid()) put_link(writer, head.link);
  for (uint32_t i = 0; i < head.more_link_count; ++i) put_link(writer, more_links[i]);
  if (head.dropped_links != 0) writer.varint(span_field::kDroppedLinks, head.dropped_links);
  if (head.error) {
    const size_t status = writer.open(span_field::kStatus);
    if (head.error_message.size != 0)
      writer.text(status_field::kMessage, {strings + head.error_message.offset, head.error_message.size});
    writer.varint(status_field::kCode, kStatusError);
    writer.close(status);
  }
  writer.close(start);
  bytes_ += writer.size() - before;
  ++count_;
  return writer.view().substr(before);
}

void RecordEncoder::add_log(const std::byte* record) {
  RecordReader reader(record);
  const LogHead& head = *reader.take<LogHead>(1);
  const auto* attributes = reader.take<AttributeSlot>(head.attribute_count);
  const char* strings = reader.take<char>(head.string_bytes);

  WireWriter& writer = scope("tuft");
  const size_t before = writer.size();
  const size_t start = writer.open(2);
  writer.fixed64(log_field::kTime, static_cast<uint64_t>(head.time));
  writer.fixed64(log_field::kObservedTime, static_cast<uint64_t>(head.time));
  writer.varint(log_field::kSeverityNumber, severity_number(head.severity));
  writer.bytes(log_field::kSeverityText, severity_text(head.severity));
  const size_t body = writer.open(log_field::kBody);
  writer.text(kString, {strings + head.message.offset, head.message.size});
  writer.close(body);
  // The event name is also an attribute, because collectors older than OTLP 1.5 drop the field.
  put_text_attribute(writer, log_field::kAttributes, "event.name", head.event.view());
  put_text_attribute(writer, log_field::kAttributes, "code.file.path", head.file);
  put_int_attribute(writer, log_field::kAttributes, "code.line.number", head.line);
  put_text_attribute(writer, log_field::kAttributes, "code.function.name", head.function);
  for (uint32_t i = 0; i < head.attribute_count; ++i)
    put_attribute(writer, log_field::kAttributes, attributes[i], strings);
  put_share_keys(writer, log_field::kAttributes, keys_of(head.context), attributes, head.attribute_count);
  if (head.context.valid()) {
    writer.fixed32(log_field::kFlags, head.context.flags);
    char* out = writer.room(64);
    out = put_trace_id(out, log_field::kTraceId, head.context);
    writer.set_end(put_id(out, log_field::kSpanId, head.context.span_id));
  }
  writer.text(log_field::kEventName, head.event.view());
  writer.close(start);
  bytes_ += writer.size() - before;
  ++count_;
}

// Spans and logs use the same field numbers: in ResourceSpans and ScopeSpans, as in their counterparts for logs, 1 is
// the resource or the scope, and 2 its contents. All lengths are computed first, so that the records are copied once.
template <typename Start>
std::string RecordEncoder::request(Start&& start) const {
  const auto field_size = [](size_t content) { return 1 + varint_size(content) + content; };
  const auto records_of = [&](const Scope& scope) { return scope.records.view().substr(start(scope)); };
  const auto scope_size = [&](const Scope& scope) {
    return field_size(field_size(scope.name.size())) + records_of(scope).size();
  };
  size_t resource_size = field_size(resource_.size());
  for (const auto& scope : scopes_) {
    if (!records_of(*scope).empty()) resource_size += field_size(scope_size(*scope));
  }
  std::string request;
  request.reserve(field_size(resource_size));
  const auto open = [&request](uint32_t field, size_t content) {
    std::array<char, kFieldBytesMax> head{};
    head[0] = static_cast<char>(tag(field, WireType::kBytes));
    request.append(head.data(), WireWriter::put_varint(head.data() + 1, content));
  };
  open(1, resource_size);
  open(1, resource_.size());
  request += resource_;
  for (const auto& scope : scopes_) {
    if (records_of(*scope).empty()) continue;
    open(2, scope_size(*scope));
    open(1, field_size(scope->name.size()));
    open(1, scope->name.size());
    request += scope->name;
    request += records_of(*scope);
  }
  return request;
}

std::string RecordEncoder::take() {
  std::string all = request([](const Scope&) { return size_t{0}; });
  clear();
  return all;
}

std::string RecordEncoder::take_new() {
  std::string added = request([](const Scope& scope) { return scope.given; });
  for (const auto& scope : scopes_) scope->given = scope->records.size();
  given_ = count_;
  return added;
}

void RecordEncoder::clear() {
  for (const auto& scope : scopes_) {
    scope->records.clear();
    scope->given = 0;
  }
  count_ = 0;
  given_ = 0;
  bytes_ = 0;
}

}  // namespace tuft::telemetry::internal::otlp
