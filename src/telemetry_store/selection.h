// Finds the rows of a segment that a viewer may see and that meet a filter. Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry_store/query.h"
#include "telemetry_store/rows.h"

namespace tuft::telemetry_store::internal {

// The time that one query may take.
class Deadline {
 public:
  static constexpr Nanos kBudget = 2 * kSecond;
  explicit Deadline(const Clock& clock) : clock_(clock), end_(clock.monotonic() + kBudget) {}
  // Returns query_too_large() after the end.
  Status check() const;

 private:
  const Clock& clock_;
  const Nanos end_;
};

// The error of a query that asks for too much. `what`: which limit it met. It is the caller's: to ask the same again
// does not help, and an error of the server would let users raise its alarms.
Error query_too_large(std::string_view what);

struct FoundRow {
  Nanos time = 0;
  size_t segment = 0;
  uint32_t row = 0;
};

// What a query asks of rows beside its filter.
struct Conditions {
  Viewer viewer;
  Filter filter;
  int severity_min = 0;       // of log records
  TraceId trace = {};         // invalid: any
  uint64_t span = 0;          // 0: any
  bool entries_only = false;  // of spans
};

// Spans without `name` and `text`: only the entries of traces are compared.
Conditions conditions_of_spans(const Viewer& viewer, const Filter& filter);
Status check_filter(const Filter& filter);
// The end of a time range, exclusive.
Nanos end_of(const TimeRange& time);

// Returns false if the segment certainly has no row that meets the conditions, judged by what is in memory.
bool may_match(const Segment& segment, Table table, const Conditions& conditions);
// Returns the numbers of the rows that meet the conditions, ascending. Errors: query_too_large().
Result<std::vector<uint32_t>> select_rows(Rows& rows, const Conditions& conditions, const Deadline& deadline);

// Returns for each context of the segment whether the viewer may see its records. Records of nobody are for operators.
std::vector<char> visible_contexts(Rows& rows, const Viewer& viewer);
bool may_see(const Viewer& viewer, std::string_view owner);

// Calls `visit` with the bytes of the records of `selected` (ascending rows). Leaves out records whose checksum is
// wrong. `visit` returns false to end. The deadline is checked before each MiB, or before each longer record. Errors:
// query_too_large().
Status read_records_of(Rows& rows, const std::vector<uint32_t>& selected, const Deadline& deadline,
                       const std::function<bool(uint32_t row, std::string_view bytes)>& visit);

}  // namespace tuft::telemetry_store::internal
