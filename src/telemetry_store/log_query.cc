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
// The memory of one page, which ends early then. Its JSON may be several times as long.
constexpr size_t kPageBytesMax = size_t{8} << 20;
constexpr size_t kReadBytesMax = size_t{1} << 20;

// A log record. Pages are in descending order of (time, segment, row); those that follow, in ascending order of
// (segment, row).
class LogSearch {
 public:
  LogSearch(const Segments& segments, Conditions conditions, const Deadline& deadline)
      : segments_(segments), conditions_(std::move(conditions)), deadline_(deadline) {}

  // Returns the newest `limit` records that are older than `before`; `more`: there are others.
  // Records at or behind `end` came after the query and belong to those that follow.
  Result<std::vector<FoundRow>> newest(size_t limit, const std::optional<Cursor>& before, const Cursor& end,
                                       bool& more) {
    std::vector<std::pair<Nanos, size_t>> order;
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (may_match(*segments_[i], Table::kLogs, conditions_))
        order.emplace_back(segments_[i]->extent().newest_of(Table::kLogs), i);
    }
    std::sort(order.rbegin(), order.rend());
    std::vector<FoundRow> found;
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
        const FoundRow one{rows.time(row), i, row};
        if (std::pair(segments_[i]->number(), uint64_t{row}) >= std::pair(end.first, end.second)) continue;
        if (!before || key_of(one) < std::tuple(before->time, before->first, before->second)) found.push_back(one);
      }
      if (found.size() <= limit) continue;
      std::sort(found.begin(), found.end(),
                [&](const FoundRow& a, const FoundRow& b) { return key_of(a) > key_of(b); });
      found.resize(limit);
      oldest_wanted = found.back().time;
      more = true;
    }
    std::sort(found.begin(), found.end(), [&](const FoundRow& a, const FoundRow& b) { return key_of(a) > key_of(b); });
    return found;
  }

  // Returns the first `limit` records that came after the cursor, and moves the cursor behind what was searched.
  Result<std::vector<FoundRow>> that_followed(size_t limit, Cursor& after) {
    std::vector<FoundRow> found;
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

  // Reads the records into the page, and removes from the end of `found` those for which it has no room.
  Status read(std::vector<FoundRow>& found, LogPage& page) {
    std::map<size_t, Rows> rows;
    for (const FoundRow& one : found) rows.try_emplace(one.segment, segments_[one.segment], Table::kLogs);
    for (size_t first = 0; first < found.size();) {
      // A small record may become a large object, so that only as many are read at once.
      size_t last = first;
      for (size_t bytes = 0; last < found.size() && bytes < kReadBytesMax; ++last)
        bytes += rows.at(found[last].segment).narrow(Column::kSize, found[last].row);
      std::map<std::pair<size_t, uint32_t>, LogRecord> records;
      TUFT_TRY(read_some(rows,
                         {found.begin() + static_cast<ptrdiff_t>(first), found.begin() + static_cast<ptrdiff_t>(last)},
                         records));
      for (; first < last; ++first) {
        const auto record = records.find({found[first].segment, found[first].row});
        if (record == records.end()) continue;
        const size_t bytes = memory_of(record->second);
        if (page.memory_bytes + bytes > kPageBytesMax && !page.logs.empty()) {
          found.resize(first);
          return {};
        }
        page.memory_bytes += bytes;
        page.logs.push_back(std::move(record->second));
      }
    }
    return {};
  }

  std::string cursor_of(const FoundRow& found) const {
    return encode_cursor({found.time, segments_[found.segment]->number(), found.row});
  }

 private:
  Status read_some(std::map<size_t, Rows>& rows, const std::vector<FoundRow>& some,
                   std::map<std::pair<size_t, uint32_t>, LogRecord>& records) {
    std::map<size_t, std::vector<uint32_t>> by_segment;
    for (const FoundRow& one : some) by_segment[one.segment].push_back(one.row);
    for (auto& [segment, selected] : by_segment) {
      Rows& of = rows.at(segment);
      std::sort(selected.begin(), selected.end());
      TUFT_TRY(read_records_of(of, selected, deadline_, [&, i = segment](uint32_t row, std::string_view bytes) {
        LogRecord& record = records[{i, row}];
        decode_log(bytes, record);
        const Context& context = of.context(row);
        record.time = of.time(row);
        record.service = clean_text(context.service, kNameMax);
        record.worker = clean_text(context.worker, kNameMax);
        record.scope = clean_text(context.scope, kNameMax);
        record.owner = context.owner;
        return true;
      }));
    }
    return {};
  }

  std::tuple<Nanos, uint64_t, uint64_t> key_of(const FoundRow& found) const {
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
  std::vector<FoundRow> found;
  if (!query.after.empty()) {
    TUFT_ASSIGN(Cursor after, decode_cursor(query.after));
    TUFT_ASSIGN(found, search.that_followed(limit, after));
    const size_t count = found.size();
    TUFT_TRY(search.read(found, page));
    if (found.size() < count) after = {0, segments[found.back().segment]->number(), uint64_t{found.back().row} + 1};
    page.newest = encode_cursor(after);
    // They came in the order of threads, each of which hands over what it has recorded meanwhile.
    std::stable_sort(page.logs.begin(), page.logs.end(),
                     [](const LogRecord& a, const LogRecord& b) { return a.time < b.time; });
    return page;
  }
  std::optional<Cursor> before;
  if (!query.page.cursor.empty()) {
    TUFT_ASSIGN(before, decode_cursor(query.page.cursor));
  }
  const Cursor end = end_of_segments(segments);
  page.newest = encode_cursor(end);
  bool more = false;
  TUFT_ASSIGN(found, search.newest(limit, before, end, more));
  const size_t count = found.size();
  TUFT_TRY(search.read(found, page));
  more = more || found.size() < count;
  if (more && !found.empty()) page.next = search.cursor_of(found.back());
  return page;
}

}  // namespace tuft::telemetry_store::internal
