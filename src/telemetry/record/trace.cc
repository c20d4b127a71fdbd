#include "telemetry/trace.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/id.h"
#include "telemetry/record/recorder.h"
#include "telemetry/record/recording.h"
#include "telemetry/record/share_keys.h"

namespace tuft::telemetry {
namespace {

using internal::AttributeSlot;
using internal::EventSlot;
using internal::StringRef;

Nanos now() {
  return system_clock().monotonic();
}

uint64_t random_nonzero() {
  const uint64_t value = random_u64();
  return value != 0 ? value : 1;
}

bool is_sampled(const SpanContext& parent, bool has_parent, uint64_t trace_id_low) {
  if (has_parent && internal::g_sampling.parent_based.load(std::memory_order_relaxed)) return parent.sampled();
  const uint64_t threshold = internal::g_sampling.threshold.load(std::memory_order_relaxed);
  return threshold != 0 && trace_id_low <= threshold;
}

// Returns false if the record's strings are full.
bool store_string(SpanRecord& record, std::string_view text, StringRef& ref) {
  const std::string_view cut = internal::cut_utf8(text, internal::kStringBytesMax);
  const uint32_t used = record.head.string_bytes;
  if (cut.size() > internal::kArenaBytes - used) return false;
  if (!cut.empty()) std::memcpy(record.strings.data() + used, cut.data(), cut.size());
  record.head.string_bytes = used + static_cast<uint32_t>(cut.size());
  ref = {used, static_cast<uint32_t>(cut.size())};
  return true;
}

bool store_value(SpanRecord& record, AttributeSlot& slot, const AttributeValue& value) {
  const AttributeValue::Kind kind = value.kind();
  switch (kind) {
    case AttributeValue::Kind::kString: {
      StringRef ref;
      if (!store_string(record, value.as_string(), ref)) return false;
      slot.as_string = ref;
      break;
    }
    case AttributeValue::Kind::kDouble:
      slot.as_double = value.as_double();
      break;
    case AttributeValue::Kind::kBool:
    case AttributeValue::Kind::kInt:
      slot.as_int = value.as_int();
      break;
  }
  slot.kind = kind;
  return true;
}

void put_attribute(SpanRecord& record, Name key, const AttributeValue& value) {
  uint32_t& count = record.head.attribute_count;
  const std::string_view wanted = key.view();
  for (uint32_t i = 0; i < count; ++i) {
    AttributeSlot& slot = record.attributes[i];
    if (slot.key.size == wanted.size() &&
        (slot.key.data == wanted.data() || std::memcmp(slot.key.data, wanted.data(), wanted.size()) == 0)) {
      if (!store_value(record, slot, value)) ++record.head.dropped_attributes;
      return;
    }
  }
  if (count == internal::kAttributesMax || !store_value(record, record.attributes[count], value)) {
    ++record.head.dropped_attributes;
    return;
  }
  record.attributes[count++].key = key;
}

EventSlot* open_event(SpanRecord& record, Name name, Nanos at = 0) {
  if (record.head.event_count == internal::kEventsMax) {
    ++record.head.dropped_events;
    return nullptr;
  }
  EventSlot& event = record.events[record.head.event_count++];
  event.name = name;
  event.time = at != 0 ? at : now();
  event.first_attribute = record.head.event_attribute_count;
  event.attribute_count = 0;
  return &event;
}

AttributeSlot* open_event_attribute(SpanRecord& record, EventSlot& event, Name key) {
  if (record.head.event_attribute_count == internal::kEventAttributesMax) {
    ++record.head.dropped_attributes;
    return nullptr;
  }
  AttributeSlot& slot = record.event_attributes[record.head.event_attribute_count++];
  ++event.attribute_count;
  slot.key = key;
  // The slot's value if there is no room for its string.
  slot.kind = AttributeValue::Kind::kString;
  slot.as_string = {0, 0};
  return &slot;
}

}  // namespace

Span::Span() = default;

Span::Span(Span&& other) noexcept
    : record_(std::exchange(other.record_, nullptr)), context_(std::exchange(other.context_, {})) {}

Span& Span::operator=(Span&& other) noexcept {
  if (this == &other) return *this;
  end();
  record_ = std::exchange(other.record_, nullptr);
  context_ = std::exchange(other.context_, {});
  return *this;
}

Span::~Span() {
  end();
}

void Span::set_attribute(Name key, AttributeValue value) {
  if (record_ != nullptr) put_attribute(*record_, key, value);
}

void Span::set_attributes(Attributes attributes) {
  if (record_ == nullptr) return;
  for (const Attribute& attribute : attributes) put_attribute(*record_, attribute.key, attribute.value);
}

void Span::share(Attributes keys) {
  if (record_ == nullptr) return;
  const uint32_t inherited = context_.keys;
  context_.keys = internal::keep_share_keys(keys, inherited);
  record_->head.context.keys = context_.keys;
  if (context_.keys != inherited) internal::release_share_keys(std::exchange(record_->shared_keys, context_.keys));
}

void Span::share(const SpanContext& other) {
  context_.keys = other.keys;
  if (record_ != nullptr) record_->head.context.keys = other.keys;
}

void Span::add_event(Name name, Attributes attributes, Nanos at) {
  if (record_ == nullptr) return;
  EventSlot* event = open_event(*record_, name, at);
  if (event == nullptr) return;
  for (const Attribute& attribute : attributes) {
    AttributeSlot* slot = open_event_attribute(*record_, *event, attribute.key);
    if (slot == nullptr) continue;
    if (!store_value(*record_, *slot, attribute.value)) ++record_->head.dropped_attributes;
  }
}

void Span::add_link(const SpanContext& link) {
  if (record_ == nullptr || !link.valid()) return;
  internal::SpanHead& head = record_->head;
  if (head.more_link_count == internal::kMoreLinksMax) {
    ++head.dropped_links;
    return;
  }
  record_->more_links[head.more_link_count++] = link;
}

void Span::record_error(const Error& error) {
  if (record_ == nullptr || record_->head.error) return;
  SpanRecord& record = *record_;
  record.head.error = true;
  if (!store_string(record, error.message, record.head.error_message)) record.head.error_message = {0, 0};
  const std::string_view type = error_code_name(error.code);
  put_attribute(record, "error.type", type);
  if (!error.reason.empty()) put_attribute(record, "tuft.error.reason", error.reason);
  EventSlot* event = open_event(record, "exception");
  if (event == nullptr) return;
  if (AttributeSlot* slot = open_event_attribute(record, *event, "exception.type")) store_value(record, *slot, type);
  // The same bytes as the status message, which are stored once.
  if (AttributeSlot* slot = open_event_attribute(record, *event, "exception.message"))
    slot->as_string = record.head.error_message;
}

void Span::update_name(Name name) {
  if (record_ == nullptr) return;
  record_->head.name = name;
  record_->head.dynamic_name = {0, 0};
}

void Span::set_dynamic_name(std::string_view name) {
  if (record_ == nullptr) return;
  StringRef ref;
  if (store_string(*record_, name, ref)) record_->head.dynamic_name = ref;
}

void Span::end(Nanos at) {
  if (record_ == nullptr) return;
  SpanRecord* record = std::exchange(record_, nullptr);
  record->head.end = std::max(at != 0 ? at : now(), record->head.start);
  if (internal::recording()) {
    internal::write_span(*record);
  } else {
    internal::count_dropped(internal::kSpanType, "shutdown", 1);
  }
  if (record->shared_keys != 0) internal::release_share_keys(std::exchange(record->shared_keys, 0));
  internal::release_span_record(record);
}

Span Tracer::start_span(Name name, const SpanOptions& options) const {
  Span span;
  const SpanContext& parent = options.parent;
  // With telemetry off, a span passes on its parent's identity.
  span.context_ = parent;
  if (!internal::recording()) return span;
  const bool has_parent = parent.valid();
  // Baggage may arrive without a trace, and share keys may be known without one.
  if (!has_parent) span.context_ = {random_u64(), random_nonzero(), 0, 0, parent.carried, parent.keys};
  const bool sampled = options.record && is_sampled(parent, has_parent, span.context_.trace_id_low);
  span.context_.span_id = random_nonzero();
  span.context_.flags = sampled ? 1 : 0;
  const bool record_unsampled = internal::g_sampling.record_unsampled.load(std::memory_order_relaxed);
  if (!options.record || (!sampled && !record_unsampled)) return span;
  SpanRecord* record = internal::acquire_span_record(sampled);
  if (record == nullptr) {
    // This span is not recorded, so its parent becomes the parent of its children.
    if (has_parent) span.context_.span_id = parent.span_id;
    internal::count_dropped(internal::kSpanType, "too_many_spans", 1);
    return span;
  }
  span.record_ = record;

  record->head = {};
  record->head.context = span.context_;
  record->head.parent_span_id = has_parent ? parent.span_id : 0;
  record->head.link = options.link;
  record->head.name = name;
  record->head.scope = scope_;
  record->head.kind = options.kind;
  record->head.start = options.start != 0 ? options.start : now();
  for (const Attribute& attribute : options.attributes) put_attribute(*record, attribute.key, attribute.value);
  return span;
}

SharedKeys::SharedKeys(const SpanContext& above, Attributes keys) : context_(above) {
  if (!internal::recording()) return;
  context_.keys = internal::keep_share_keys(keys, above.keys);
  if (context_.keys != above.keys) number_ = context_.keys;
}

SharedKeys::SharedKeys(SharedKeys&& other) noexcept
    : context_(std::exchange(other.context_, {})), number_(std::exchange(other.number_, 0)) {}

SharedKeys& SharedKeys::operator=(SharedKeys&& other) noexcept {
  if (this == &other) return *this;
  internal::release_share_keys(std::exchange(number_, std::exchange(other.number_, 0)));
  context_ = std::exchange(other.context_, {});
  return *this;
}

SharedKeys::~SharedKeys() {
  internal::release_share_keys(number_);
}

SpanContext share(const SpanContext& context, Attributes keys) {
  return SharedKeys(context, keys).context();
}

Tracer get_tracer(Name scope) {
  return Tracer(scope);
}

}  // namespace tuft::telemetry
