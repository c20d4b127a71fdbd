// Holds spans and log records between the call that records them and the exporter. Internal to telemetry.
//
// A running span is a SpanRecord from a pool. When it ends, its used part is copied into the ring of the thread that
// ends it, and the record returns to that thread's pool. The telemetry thread drains every ring. A ring belongs to one
// thread until that thread ends; then the telemetry thread empties it and keeps it for another thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/clock.h"
#include "telemetry/attribute.h"
#include "telemetry/context.h"
#include "telemetry/log.h"
#include "telemetry/record/byte_ring.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace internal {

inline constexpr size_t kAttributesMax = 32;
inline constexpr size_t kEventsMax = 8;
inline constexpr size_t kEventAttributesMax = 16;
inline constexpr size_t kMoreLinksMax = 31;  // in addition to the link of the start
inline constexpr size_t kArenaBytes = 2048;
inline constexpr size_t kStringBytesMax = 512;
inline constexpr size_t kLogMessageBytesMax = 4096;
inline constexpr size_t kRingBytes = size_t{1} << 20;
// The maximum number of spans alive at once; further spans are only counted.
inline constexpr size_t kSpanRecordsMax = 16384;

inline constexpr uint32_t kSpanType = 1;
inline constexpr uint32_t kLogType = 2;

struct StringRef {
  uint32_t offset;  // into the record's strings
  uint32_t size;
};

struct NameRef {
  const char* data = nullptr;
  size_t size = 0;
  NameRef() = default;
  NameRef(Name name) : data(name.view().data()), size(name.view().size()) {}  // NOLINT(google-explicit-constructor)
  std::string_view view() const { return {data, size}; }
};

struct AttributeSlot {
  NameRef key;
  union {
    int64_t as_int;  // bool too
    double as_double;
    StringRef as_string;
  };
  AttributeValue::Kind kind;
};

struct EventSlot {
  NameRef name;
  Nanos time;  // monotonic
  uint32_t first_attribute;
  uint32_t attribute_count;
};

// Layout in a ring: RecordHeader, SpanHead, attributes, events, event attributes, more links, strings.
struct SpanHead {
  SpanContext context;
  SpanContext link;
  uint64_t parent_span_id;
  NameRef name;
  StringRef dynamic_name;  // replaces `name` if it is not empty
  NameRef scope;
  Nanos start;  // monotonic
  Nanos end;
  StringRef error_message;
  uint32_t attribute_count;
  uint32_t event_count;
  uint32_t event_attribute_count;
  uint32_t more_link_count;
  uint32_t string_bytes;
  uint32_t dropped_attributes;
  uint32_t dropped_events;
  uint32_t dropped_links;
  SpanKind kind;
  bool error;
};

// Layout in a ring: RecordHeader, LogHead, attributes, strings.
struct LogHead {
  Nanos time;  // wall
  SpanContext context;
  NameRef event;
  const char* file;  // from std::source_location: static
  const char* function;
  uint32_t line;
  StringRef message;
  uint32_t attribute_count;
  uint32_t string_bytes;
  Severity severity;
};

}  // namespace internal

struct SpanRecord {
  internal::SpanHead head;
  std::array<internal::AttributeSlot, internal::kAttributesMax> attributes;
  std::array<internal::EventSlot, internal::kEventsMax> events;
  std::array<internal::AttributeSlot, internal::kEventAttributesMax> event_attributes;
  std::array<SpanContext, internal::kMoreLinksMax> more_links;
  std::array<char, internal::kArenaBytes> strings;
  SpanRecord* next = nullptr;  // in a pool
  uint32_t process = 0;        // see write_span()
  uint32_t shared_keys = 0;    // the set of share keys that is kept until the span has ended; 0: none
};

namespace internal {

// Returns an empty record; null if too many spans are alive.
SpanRecord* acquire_span_record(bool sampled);
void release_span_record(SpanRecord* record);

struct SpanCounts {
  uint64_t sampled = 0;
  uint64_t record_only = 0;
  uint64_t ended = 0;  // sampled and record-only spans
};
// Returns the counts since the process began. Thread-safe, but not a snapshot of one moment, because recording
// continues.
SpanCounts count_spans();

// Copies the record into the calling thread's ring. Returns false, and counts the loss, if the ring is full. A span
// that was alive at a fork() is written by the parent only.
bool write_span(const SpanRecord& record);

// Writes a log record. Cuts strings and leaves out attributes over kAttributesMax. `head` has all fields except counts
// and strings.
bool write_log(LogHead head, std::string_view message, Attributes attributes);

// Returns `text` cut to at most `size_max` bytes, between two UTF-8 characters.
std::string_view cut_utf8(std::string_view text, size_t size_max);

using TakeRecord = std::function<void(const RecordHeader& header, const std::byte* record)>;
// Passes everything written so far to `take`, and keeps the rings of threads that ended for reuse. Returns the fill of
// the fullest ring, 0 .. 1. For the telemetry thread only.
double drain_rings(const TakeRecord& take);

// Sets a function that is called, without a lock held, when a ring becomes half full.
void set_ring_wake_up(void (*wake_up)());

// Counts spans or log records that were lost before a ring or after a queue.
void count_dropped(uint32_t type, std::string_view reason, int64_t count);

}  // namespace internal
}  // namespace tuft::telemetry
