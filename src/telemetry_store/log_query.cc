#include "telemetry_store/log_query.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "telemetry_store/cursor.h"
#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/selection.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr size_t kNameMax = 512;

// A log record. Pages are in descending order of (time, segment, row); those that follow, in ascending order of
// (segment, row).
struct Found {
  Nanos time = 0;
  size_t segment = 0;
  uint32_t row = 0;
};

class LogSearch {
 public:
  LogSearch(const Segments& segments, Conditions conditions, const Deadline& deadline)
      : segments_(segments), conditions_(std::move(conditions)), deadline_(deadline) {}

  // Returns the newest `limit` records that are older than `before`; `more`: there are others.
  // Records at or behind `end` came after the query and belong to those that follow.
  Result<std::vector<Found>> newest(size_t limit, const std::optional<Cursor>& before, const Cursor& end, bool& more) {
    std::vector<std::pair<Nanos, size_t>> order;
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (may_match(*segments_[i], Table::kLogs, conditions_))
        order.emplace_back(segments_[i]->extent().newest_of(Table::kLogs), i);
    }
    std::sort(order.rbegin(), order.rend());
    std::vector<Found> found;
    Nanos oldest_wanted = std::numeric_limits<Nanos>::min();
    for (const auto& [time, i] : order) {
      if (time < oldest_wanted) {
        more = true;
        break;
      }
      TUFT_TRY(deadline_.check());
      Rows rows(segments_[i], Table::kLogs);
      Conditions wanted = conditions_;
      wanted.filter.time.from = std::max(wanted.filter.time.from, oldest_wanted);
      if (before) wanted.filter.time.until = std::min(end_of(wanted.filter.time), before->time + 1);
      TUFT_ASSIGN(const std::vector<uint32_t> selected, select_rows(rows, wanted, deadline_));
      for (const uint32_t row : selected) {
        const Found one{rows.time(row), i, row};
        if (std::pair(segments_[i]->number(), uint64_t{row}) >= std::pair(end.first, end.second)) continue;
        if (!before || key_of(one) < std::tuple(before->time, before->first, before->second)) found.push_back(one);
      }
      if (found.size() <= limit) continue;
      std::sort(found.begin(), found.end(), [&](const Found& a, const Found& b) { return key_of(a) > key_of(b); });
      found.resize(limit);
      oldest_wanted = found.back().time;
      more = true;
    }
    std::sort(found.begin(), found.end(), [&](const Found& a, const Found& b) { return key_of(a) > key_of(b); });
    return found;
  }

  // Returns the first `limit` records that came after the cursor, and moves the cursor behind what was searched.
  Result<std::vector<Found>> that_followed(size_t limit, Cursor& after) {
    std::vector<Found> found;
    for (size_t i = 0; i < segments_.size() && found.size() < limit; ++i) {
      const uint64_t number = segments_[i]->number();
      if (number < after.first) continue;
      TUFT_TRY(deadline_.check());
      Rows rows(segments_[i], Table::kLogs);
      const uint64_t first = number == after.first ? after.second : 0;
      after = {0, number, std::max<uint64_t>(first, rows.count())};
      if (first >= rows.count() || !may_match(*segments_[i], Table::kLogs, conditions_)) continue;
      TUFT_ASSIGN(const std::vector<uint32_t> selected, select_rows(rows, conditions_, deadline_));
      for (const uint32_t row : selected) {
        if (row < first) continue;
        if (found.size() >= limit) {
          after.second = row;
          return found;
        }
        found.push_back({rows.time(row), i, row});
      }
    }
    return found;
  }

  Result<std::vector<LogRecord>> read(const std::vector<Found>& found) {
    std::map<std::pair<size_t, uint32_t>, LogRecord> records;
    std::map<size_t, std::vector<uint32_t>> by_segment;
    for (const Found& one : found) by_segment[one.segment].push_back(one.row);
    for (auto& [segment, selected] : by_segment) {
      Rows rows(segments_[segment], Table::kLogs);
      std::sort(selected.begin(), selected.end());
      TUFT_TRY(read_records_of(rows, selected, deadline_, [&, i = segment](uint32_t row, std::string_view bytes) {
        LogRecord& record = records[{i, row}];
        decode_log(bytes, record);
        const Context& context = rows.context(row);
        record.time = rows.time(row);
        record.service = clean_text(context.service, kNameMax);
        record.worker = clean_text(context.worker, kNameMax);
        record.scope = clean_text(context.scope, kNameMax);
        record.owner = context.owner;
        return true;
      }));
    }
    std::vector<LogRecord> list;
    for (const Found& one : found) {
      const auto record = records.find({one.segment, one.row});
      if (record != records.end()) list.push_back(std::move(record->second));
    }
    return list;
  }

  std::string cursor_of(const Found& found) const {
    return encode_cursor({found.time, segments_[found.segment]->number(), found.row});
  }

 private:
  std::tuple<Nanos, uint64_t, uint64_t> key_of(const Found& found) const {
    return {found.time, segments_[found.segment]->number(), found.row};
  }

  const Segments& segments_;
  const Conditions conditions_;
  const Deadline& deadline_;
};

Status check_query(const LogQuery& query) {
  TUFT_TRY(check_filter(query.filter));
  if (query.filter.duration_min || query.filter.duration_max)
    return invalid_argument("log records have no duration: leave out min_duration and max_duration");
  if (!query.trace_id.empty() && !parse_trace_id(query.trace_id).valid())
    return invalid_argument("the id of a trace has 32 hexadecimal digits");
  if (!query.span_id.empty() && parse_span_id(query.span_id) == 0)
    return invalid_argument("the id of a span has 16 hexadecimal digits");
  if (!query.after.empty() && !query.page.cursor.empty())
    return invalid_argument("`after` follows newer records and `cursor` goes to older ones: use one of them");
  return {};
}

// Behind all records that are there now.
Cursor end_of_segments(const Segments& segments) {
  if (segments.empty()) return {};
  return {0, segments.back()->number(), segments.back()->extent().rows_of(Table::kLogs)};
}

}  // namespace

Result<LogPage> find_logs(const Segments& segments, const Viewer& viewer, const LogQuery& query, const Clock& clock) {
  TUFT_TRY(check_query(query));
  Conditions conditions{.viewer = viewer, .filter = query.filter};
  conditions.severity_min = query.severity_min;
  if (!query.trace_id.empty()) conditions.trace = parse_trace_id(query.trace_id);
  if (!query.span_id.empty()) conditions.span = parse_span_id(query.span_id);
  const Deadline deadline(clock);
  const size_t limit = std::clamp<size_t>(query.page.limit, 1, kLogsMax);
  LogSearch search(segments, std::move(conditions), deadline);
  LogPage page;
  std::vector<Found> found;
  if (!query.after.empty()) {
    TUFT_ASSIGN(Cursor after, decode_cursor(query.after));
    TUFT_ASSIGN(found, search.that_followed(limit, after));
    page.newest = encode_cursor(after);
  } else {
    std::optional<Cursor> before;
    if (!query.page.cursor.empty()) {
      TUFT_ASSIGN(before, decode_cursor(query.page.cursor));
    }
    const Cursor end = end_of_segments(segments);
    page.newest = encode_cursor(end);
    bool more = false;
    TUFT_ASSIGN(found, search.newest(limit, before, end, more));
    if (more && !found.empty()) page.next = search.cursor_of(found.back());
  }
  TUFT_ASSIGN(page.logs, search.read(found));
  return page;
}

}  // namespace tuft::telemetry_store::internal
