#include "telemetry_store/otlp_decoder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/base64.h"
#include "base/text.h"
#include "base/utf8.h"
#include "telemetry_store/wire.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr size_t kTextBytesMax = size_t{16} << 10;
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kEventsMax = 1024;
constexpr int kNestingMax = 6;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

void append_json_text(std::string& out, std::string_view raw) {
  out.push_back('"');
  for (const char c : clean_text(raw, kTextBytesMax)) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      append_hex(out, {&c, 1});
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

void append_json_number(std::string& out, double value) {
  if (std::isfinite(value)) {
    append_number(out, value);
  } else {
    out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  }
}

void append_json(std::string& out, std::string_view any, int nesting);

// The list of an ArrayValue, or the KeyValues of a KeyValueList.
void append_json_list(std::string& out, std::string_view list, bool is_map, int nesting) {
  out.push_back(is_map ? '{' : '[');
  WireReader reader(list);
  bool first = true;
  while (reader.next() && out.size() < kTextBytesMax) {
    if (reader.field() != 1) continue;
    if (!first) out.push_back(',');
    first = false;
    if (!is_map) {
      append_json(out, reader.bytes(), nesting + 1);
      continue;
    }
    std::string_view key;
    std::string_view value;
    WireReader pair(reader.bytes());
    while (pair.next()) {
      if (pair.field() == field::kKeyValueKey) key = pair.bytes();
      if (pair.field() == field::kKeyValueValue) value = pair.bytes();
    }
    append_json_text(out, key);
    out.push_back(':');
    append_json(out, value, nesting + 1);
  }
  out.push_back(is_map ? '}' : ']');
}

void append_json(std::string& out, std::string_view any, int nesting) {
  WireReader value(any);
  if (nesting > kNestingMax || !value.next()) {
    out += "null";
    return;
  }
  switch (value.field()) {
    case field::kAnyString:
      return append_json_text(out, value.bytes());
    case field::kAnyBool:
      out += value.number() != 0 ? "true" : "false";
      return;
    case field::kAnyInt:
      return append_number(out, static_cast<int64_t>(value.number()));
    case field::kAnyDouble:
      return append_json_number(out, value.decimal());
    case field::kAnyArray:
      return append_json_list(out, value.bytes(), false, nesting);
    case field::kAnyMap:
      return append_json_list(out, value.bytes(), true, nesting);
    case field::kAnyBytes:
      return append_json_text(out, to_base64(value.bytes().substr(0, kTextBytesMax / 2)));
    default:
      out += "null";
  }
}

// Whether an AnyValue is a string, and which.
bool is_string(std::string_view any, std::string_view& text) {
  WireReader value(any);
  if (!value.next() || value.field() != field::kAnyString) return false;
  text = value.bytes();
  return true;
}

bool add_attribute(std::string_view bytes, std::vector<Attribute>& out) {
  if (out.size() >= kAttributesMax) return true;
  WireReader reader(bytes);
  Attribute attribute;
  std::string_view any;
  while (reader.next()) {
    if (reader.field() == field::kKeyValueKey) attribute.key = clean_text(reader.bytes(), kNameBytesMax);
    if (reader.field() == field::kKeyValueValue) any = reader.bytes();
  }
  std::string_view text;
  attribute.is_text = is_string(any, text);
  if (attribute.is_text) {
    attribute.value = clean_text(text, kTextBytesMax);
  } else {
    append_json(attribute.value, any, 0);
  }
  out.push_back(std::move(attribute));
  return reader.ok();
}

bool add_event(std::string_view bytes, std::vector<Event>& out) {
  if (out.size() >= kEventsMax) return true;
  Event& event = out.emplace_back();
  WireReader reader(bytes);
  bool ok = true;
  while (reader.next()) {
    if (reader.field() == field::kEventTime) event.time = nanos_of(reader.number());
    if (reader.field() == field::kEventName) event.name = clean_text(reader.bytes(), kNameBytesMax);
    if (reader.field() == field::kEventAttributes) ok = add_attribute(reader.bytes(), event.attributes) && ok;
  }
  return reader.ok() && ok;
}

bool add_link(std::string_view bytes, std::vector<Link>& out) {
  if (out.size() >= kLinksMax) return true;
  Link& link = out.emplace_back();
  WireReader reader(bytes);
  bool ok = true;
  while (reader.next()) {
    if (reader.field() == field::kLinkTrace) link.trace_id = hex_of(trace_id_of(reader.bytes()));
    if (reader.field() == field::kLinkSpan) link.span_id = hex_of(span_id_of(reader.bytes()));
    if (reader.field() == field::kLinkAttributes) ok = add_attribute(reader.bytes(), link.attributes) && ok;
  }
  return reader.ok() && ok;
}

bool attribute_contains(std::string_view bytes, std::string_view text) {
  WireReader reader(bytes);
  while (reader.next()) {
    std::string_view value;
    if (reader.field() == field::kKeyValueValue && is_string(reader.bytes(), value))
      return contains_without_case(value, text);
  }
  return false;
}

bool event_contains(std::string_view bytes, std::string_view text) {
  WireReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == field::kEventName && contains_without_case(reader.bytes(), text)) return true;
    if (reader.field() == field::kEventAttributes && attribute_contains(reader.bytes(), text)) return true;
  }
  return false;
}

constexpr size_t kIdsBytes = 64;  // the texts of the ids of a trace and a span

size_t memory_of(const std::vector<Attribute>& attributes) {
  size_t bytes = 0;
  for (const Attribute& attribute : attributes)
    bytes += sizeof attribute + attribute.key.size() + attribute.value.size();
  return bytes;
}

void append_hex_of(std::string& out, uint64_t value) {
  const uint64_t big_endian = __builtin_bswap64(value);
  append_hex(out, {reinterpret_cast<const char*>(&big_endian), sizeof big_endian});
}

bool parse_hex(std::string_view hex, uint64_t& out) {
  const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), out, 16);
  return hex.size() == 16 && parsed.ec == std::errc() && parsed.ptr == hex.data() + hex.size();
}

}  // namespace

std::string clean_text(std::string_view text, size_t size_max) {
  const bool cut = text.size() > size_max;
  text = text.substr(0, size_max);
  std::string out;
  if (is_utf8(text)) {
    out = text;
  } else {
    out.reserve(text.size() + 16);
    while (!text.empty()) {
      const size_t length = utf8_length(text);
      // What the cut left of a character is no error of the sender.
      if (length == 0 && cut && text.size() < 4) break;
      out += length == 0 ? kReplacement : text.substr(0, length);
      text.remove_prefix(std::max<size_t>(length, 1));
    }
  }
  if (cut) out += "...";
  return out;
}

bool decode_span(std::string_view bytes, Span& out) {
  SpanView view;
  if (!read_span(bytes, view)) return false;
  out.trace_id = hex_of(view.trace);
  out.span_id = hex_of(view.span);
  if (view.parent != 0) out.parent_id = hex_of(view.parent);
  out.name = clean_text(view.name, kNameBytesMax);
  out.kind = view.kind;
  out.start = view.start;
  out.duration = view.duration;
  out.failed = view.failed;
  WireReader reader(bytes);
  bool ok = true;
  while (reader.next()) {
    if (reader.field() == field::kSpanAttributes) ok = add_attribute(reader.bytes(), out.attributes) && ok;
    if (reader.field() == field::kSpanEvents) ok = add_event(reader.bytes(), out.events) && ok;
    if (reader.field() == field::kSpanLinks) ok = add_link(reader.bytes(), out.links) && ok;
    if (reader.field() != field::kSpanStatus) continue;
    WireReader status(reader.bytes());
    while (status.next()) {
      if (status.field() == field::kStatusMessage) out.status_message = clean_text(status.bytes(), kTextBytesMax);
    }
  }
  return ok;
}

bool decode_log(std::string_view bytes, LogRecord& out) {
  LogView view;
  if (!read_log(bytes, view)) return false;
  out.time = view.time;
  out.severity = view.severity;
  out.event = clean_text(view.name, kNameBytesMax);
  if (view.trace.valid()) out.trace_id = hex_of(view.trace);
  if (view.span != 0) out.span_id = hex_of(view.span);
  WireReader reader(bytes);
  bool ok = true;
  while (reader.next()) {
    if (reader.field() == field::kLogAttributes) ok = add_attribute(reader.bytes(), out.attributes) && ok;
    if (reader.field() != field::kLogBody) continue;
    std::string_view text;
    if (is_string(reader.bytes(), text)) {
      out.body = clean_text(text, kTextBytesMax);
    } else {
      out.body.clear();
      append_json(out.body, reader.bytes(), 0);
    }
  }
  return ok;
}

size_t memory_of(const Span& span) {
  size_t bytes = sizeof span + span.name.size() + span.service.size() + span.worker.size() + span.scope.size() +
                 span.owner.size() + span.status_message.size() + memory_of(span.attributes);
  for (const Event& event : span.events) bytes += sizeof event + event.name.size() + memory_of(event.attributes);
  for (const Link& link : span.links) bytes += sizeof link + kIdsBytes + memory_of(link.attributes);
  return bytes + kIdsBytes;
}

size_t memory_of(const LogRecord& log) {
  return sizeof log + kIdsBytes + log.event.size() + log.body.size() + log.service.size() + log.worker.size() +
         log.scope.size() + log.owner.size() + memory_of(log.attributes);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  // Without a branch, so that many bytes are changed at once.
  for (char& c : out) c = static_cast<char>(c + (static_cast<unsigned char>(c - 'A') < 26 ? 'a' - 'A' : 0));
  return out;
}

bool contains_without_case(std::string_view content, std::string_view text) {
  if (content.size() < text.size()) return false;
  const std::string lower = lower_case(content);
  // Its time is linear whatever both are; that of std::search is their product.
  return ::memmem(lower.data(), lower.size(), text.data(), text.size()) != nullptr;
}

bool span_contains(std::string_view bytes, std::string_view text) {
  WireReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == field::kSpanName && contains_without_case(reader.bytes(), text)) return true;
    if (reader.field() == field::kSpanAttributes && attribute_contains(reader.bytes(), text)) return true;
    if (reader.field() == field::kSpanEvents && event_contains(reader.bytes(), text)) return true;
    if (reader.field() != field::kSpanStatus) continue;
    WireReader status(reader.bytes());
    while (status.next()) {
      if (status.field() == field::kStatusMessage && contains_without_case(status.bytes(), text)) return true;
    }
  }
  return false;
}

bool log_contains(std::string_view bytes, std::string_view text) {
  WireReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == field::kLogEvent && contains_without_case(reader.bytes(), text)) return true;
    if (reader.field() == field::kLogAttributes && attribute_contains(reader.bytes(), text)) return true;
    std::string_view body;
    if (reader.field() == field::kLogBody && is_string(reader.bytes(), body) && contains_without_case(body, text))
      return true;
  }
  return false;
}

std::string hex_of(const TraceId& id) {
  std::string out;
  append_hex_of(out, id.high);
  append_hex_of(out, id.low);
  return out;
}

std::string hex_of(uint64_t span_id) {
  std::string out;
  append_hex_of(out, span_id);
  return out;
}

TraceId parse_trace_id(std::string_view hex) {
  TraceId id;
  if (hex.size() != 32 || !parse_hex(hex.substr(0, 16), id.high) || !parse_hex(hex.substr(16), id.low)) return {};
  return id;
}

uint64_t parse_span_id(std::string_view hex) {
  uint64_t id = 0;
  return parse_hex(hex, id) ? id : 0;
}

}  // namespace tuft::telemetry_store::internal
