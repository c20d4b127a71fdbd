// A part of the history: records in the order of their arrival, as encoded bytes and as columns. Internal to
// telemetry_store.
//
// A segment has three tables: spans, log records, and links of spans. Its strings are numbered in a dictionary of its
// own; what records have in common (service, worker, scope, owner) is a context. Segments only grow, at their end:
// `rows` rows of every column can be read once extent() has shown them. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "telemetry_store/otlp_reader.h"

namespace tuft::telemetry_store::internal {

enum class Table : uint8_t { kSpans, kLogs, kLinks };
inline constexpr size_t kTables = 3;

// Spans have all columns, log records those up to kFlags. Of links, kTraceHigh, kTraceLow and kId are the target, and
// kPosition is the row of the span that has the link.
enum class Column : uint8_t {
  kTraceHigh,
  kTraceLow,
  kId,
  kTime,      // start of a span
  kPosition,  // of the encoded record in the segment
  kSize,
  kSum,  // its checksum
  kContext,
  kName,
  kSession,  // the keys, in the order of Key
  kRun,
  kSampler,
  kRequest,
  kOperation,
  kBaseModel,
  kFlags,  // of spans, see SpanFlag; of log records the severity
  kParent,
  kDuration,
};
inline constexpr size_t kColumns = 18;
inline constexpr Column column_of(Key key) {
  return static_cast<Column>(static_cast<size_t>(Column::kSession) + static_cast<size_t>(key));
}

constexpr size_t width_of(Column column) {
  switch (column) {
    case Column::kTraceHigh:
    case Column::kTraceLow:
    case Column::kId:
    case Column::kTime:
    case Column::kParent:
    case Column::kDuration:
      return 8;
    case Column::kFlags:
      return 1;
    default:
      return 4;
  }
}
constexpr bool has_column(Table table, Column column) {
  if (table == Table::kSpans) return true;
  if (table == Table::kLogs) return column <= Column::kFlags;
  return column <= Column::kId || column == Column::kPosition;
}

// Bits of kFlags of spans; the lowest three are the kind.
namespace span_flag {
inline constexpr uint8_t kKind = 7, kFailed = 8, kEntry = 16;
}

inline constexpr Nanos kFutureMax = 3600 * kSecond;
// A record from a later time has a wrong clock, and would stand first in every list until then: it gets the time `now`.
inline Nanos possible_time(Nanos time, Nanos now) {
  return time <= 0 || time > now + kFutureMax ? now : time;
}
inline void limit_times(SpanView& span, Nanos now) {
  span.start = possible_time(span.start, now);
  span.duration = std::min(span.duration, now + kFutureMax - span.start);
}

struct Context {
  std::string service, worker, scope, owner;
  bool of_program = false;  // of a user's own program, which says about itself what it likes
  friend bool operator==(const Context&, const Context&) = default;
};

// A copy of the dictionary of a segment.
struct Strings {
  std::vector<uint32_t> ends;
  std::string blob;
  size_t count() const { return ends.size(); }
  // Returns nothing for a number that is not there.
  std::string_view text(uint32_t number) const {
    if (number >= ends.size()) return {};
    const size_t begin = number == 0 ? 0 : ends[number - 1];
    if (begin > ends[number] || ends[number] > blob.size()) return {};
    return std::string_view(blob).substr(begin, ends[number] - begin);
  }
};

// How many records of each signal.
struct RecordCount {
  uint64_t spans = 0, logs = 0;
  uint64_t all() const { return spans + logs; }
  RecordCount& operator+=(const RecordCount& other) {
    spans += other.spans;
    logs += other.logs;
    return *this;
  }
};
// Returns what is in `a` more than in `b`; 0 of a signal of which `b` has more.
inline RecordCount excess(const RecordCount& a, const RecordCount& b) {
  return {a.spans - std::min(a.spans, b.spans), a.logs - std::min(a.logs, b.logs)};
}

struct Extent {
  std::array<uint32_t, kTables> rows{};
  // Of the times of spans and log records.
  std::array<Nanos, 2> oldest{}, newest{};
  Nanos arrived_first = 0, arrived_last = 0;  // by the clock of the store
  uint64_t bytes = 0;                         // of the records

  uint32_t rows_of(Table table) const { return rows[static_cast<size_t>(table)]; }
  RecordCount records() const { return {rows_of(Table::kSpans), rows_of(Table::kLogs)}; }
  Nanos oldest_of(Table table) const { return oldest[static_cast<size_t>(table)]; }
  Nanos newest_of(Table table) const { return newest[static_cast<size_t>(table)]; }
};

class Segment {
 public:
  explicit Segment(uint64_t number) : number_(number) {}
  virtual ~Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Segments are numbered in the order of their making.
  uint64_t number() const { return number_; }
  virtual Extent extent() const = 0;
  // Returns false if the segment certainly holds no string or id of this hash (hash.h).
  virtual bool may_have(uint64_t hash) const = 0;
  virtual std::optional<uint32_t> find_string(std::string_view text) const = 0;
  virtual Strings strings() const = 0;
  // Returns one string of the dictionary.
  virtual std::string string(uint32_t number) const = 0;
  virtual std::vector<Context> contexts() const = 0;
  // Returns bytes of the records; empty if they cannot be read.
  virtual std::string read(uint64_t position, size_t size) const = 0;

  // While the returned object lives, reading costs no opening of files.
  virtual std::shared_ptr<const void> hold() const { return nullptr; }

  // Returns the first `rows` values of a column; nothing if they cannot be read.
  template <typename T>
  std::vector<T> column(Table table, Column column, size_t rows) const {
    static_assert(std::is_integral_v<T>);
    std::vector<T> values(rows);
    if (sizeof(T) != width_of(column) || !copy_values(table, column, 0, rows, values.data())) values.clear();
    return values;
  }
  // Returns false if the value cannot be read.
  template <typename T>
  bool value(Table table, Column column, uint32_t row, T& out) const {
    return sizeof(T) == width_of(column) && copy_values(table, column, row, 1, &out);
  }

 protected:
  virtual bool copy_values(Table table, Column column, size_t first, size_t count, void* out) const = 0;

 private:
  const uint64_t number_;
};

}  // namespace tuft::telemetry_store::internal
