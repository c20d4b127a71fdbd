#include "telemetry_store/selection.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "telemetry_store/entry.h"
#include "telemetry_store/hash.h"
#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/string_table.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr size_t kFilterTextMax = 1024;
// Records that are at most this far apart are read together.
constexpr size_t kGapMax = size_t{32} << 10;
constexpr size_t kReadMax = size_t{1} << 20;
// A severity of ERROR or above counts as failed.
constexpr uint8_t kSeverityError = 17;

struct KeyCondition {
  Column column;
  const std::string& value;
};

std::vector<KeyCondition> key_conditions(const Filter& filter) {
  std::vector<KeyCondition> conditions;
  const std::pair<Column, const std::string&> all[] = {
      {Column::kRequest, filter.request},     {Column::kRun, filter.run},
      {Column::kSampler, filter.sampler},     {Column::kSession, filter.session},
      {Column::kOperation, filter.operation}, {Column::kBaseModel, filter.base_model}};
  for (const auto& [column, value] : all) {
    if (!value.empty()) conditions.push_back({column, value});
  }
  return conditions;
}

// The names of a filter: alternatives between '|', each whole or the beginning of one before a final '*'.
std::vector<std::string_view> alternatives_of(std::string_view names) {
  std::vector<std::string_view> found;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('|', begin), names.size());
    if (end > begin) found.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

bool is_prefix(std::string_view name) {
  return name.ends_with('*');
}

bool may_have_text(const Segment& segment, std::string_view text) {
  return segment.may_have(hash_of(cut_string(text)));
}

// True if both are, without a branch that the row's values make unpredictable.
bool both(bool a, bool b) {
  return (static_cast<unsigned>(a) & static_cast<unsigned>(b)) != 0;
}

// Keeps the rows for which `keep` is true. `all`: nothing was left out so far, and `selected` is empty.
template <typename Keep>
void narrow_down(std::vector<uint32_t>& selected, bool& all, size_t count, const Keep& keep) {
  if (!all) {
    std::erase_if(selected, [&keep](uint32_t row) { return !keep(row); });
    return;
  }
  all = false;
  // Without a branch, because half of the rows may be wanted.
  selected.resize(count);
  size_t kept = 0;
  for (uint32_t row = 0; row < count; ++row) {
    selected[kept] = row;
    kept += keep(row) ? 1 : 0;
  }
  selected.resize(kept);
}

std::vector<char> matching_names(const Strings& strings, std::string_view wanted) {
  std::vector<char> matches(strings.count());
  for (const std::string_view name : alternatives_of(wanted)) {
    const std::string_view beginning = name.substr(0, name.size() - (is_prefix(name) ? 1 : 0));
    for (uint32_t i = 0; i < matches.size(); ++i) {
      if (is_prefix(name) ? strings.text(i).starts_with(beginning) : strings.text(i) == cut_string(name))
        matches[i] = 1;
    }
  }
  return matches;
}

uint64_t entry_begin(Rows& rows, uint32_t row) {
  return uint64_t{rows.narrow(Column::kPosition, row)} - sizeof(EntryHead);
}

uint64_t entry_end(Rows& rows, uint32_t row) {
  return uint64_t{rows.narrow(Column::kPosition, row)} + rows.narrow(Column::kSize, row);
}

// Rows that are read together, and the bytes of the segment from `begin` on.
struct Piece {
  std::span<const uint32_t> rows;
  uint64_t begin = 0;
  std::string bytes;
};

// Reads the records of `selected`, ascending rows, in pieces. `visit` returns false to end.
Status read_pieces(Rows& rows, std::span<const uint32_t> selected, const Deadline& deadline,
                   const std::function<bool(const Piece&)>& visit) {
  while (!selected.empty()) {
    TUFT_TRY(deadline.check());
    if (rows.narrow(Column::kPosition, selected[0]) < sizeof(EntryHead)) return {};
    const uint64_t begin = entry_begin(rows, selected[0]);
    uint64_t end = entry_end(rows, selected[0]);
    size_t count = 1;
    while (count < selected.size() && entry_begin(rows, selected[count]) <= end + kGapMax &&
           entry_end(rows, selected[count]) - begin <= kReadMax)
      end = entry_end(rows, selected[count++]);
    if (!visit({selected.first(count), begin, rows.segment().read(begin, end - begin)})) return {};
    selected = selected.subspan(count);
  }
  return {};
}

// Returns the bytes of the record; nothing if it is damaged.
std::optional<std::string_view> record_of(Rows& rows, const Piece& piece, uint32_t row) {
  const uint64_t begin = entry_begin(rows, row);
  if (begin < piece.begin || entry_end(rows, row) - piece.begin > piece.bytes.size()) return std::nullopt;
  const size_t offset = begin - piece.begin;
  EntryHead head;
  std::memcpy(&head, piece.bytes.data() + offset, sizeof head);
  const std::string_view record =
      std::string_view(piece.bytes).substr(offset + sizeof head, rows.narrow(Column::kSize, row));
  const EntryType type = rows.table() == Table::kSpans ? EntryType::kSpan : EntryType::kLog;
  if (entry_sum(type, head.context, record) != rows.narrow(Column::kSum, row)) return std::nullopt;
  return record;
}

// Keeps the rows whose record contains the text.
Status select_by_text(Rows& rows, const std::string& text, std::vector<uint32_t>& selected, const Deadline& deadline) {
  const auto contains = rows.table() == Table::kSpans ? span_contains : log_contains;
  const std::string wanted = lower_case(text);
  const std::vector<uint32_t> candidates = std::exchange(selected, {});
  return read_pieces(rows, candidates, deadline, [&](const Piece& piece) {
    const std::string lower = lower_case(piece.bytes);
    size_t at = 0;
    for (const uint32_t row : piece.rows) {
      const size_t begin = rows.narrow(Column::kPosition, row) - piece.begin;
      const size_t end = entry_end(rows, row) - piece.begin;
      if (begin > end || end > lower.size()) break;
      // One search goes on over all records, so that no byte is searched twice. Few records are looked at closer.
      if (at < begin) {
        const void* found = ::memmem(lower.data() + begin, lower.size() - begin, wanted.data(), wanted.size());
        if (found == nullptr) break;
        at = static_cast<size_t>(static_cast<const char*>(found) - lower.data());
      }
      if (at >= end) continue;
      at = end;
      const auto record = record_of(rows, piece, row);
      if (record && contains(*record, wanted)) selected.push_back(row);
    }
    return true;
  });
}

}  // namespace

Status Deadline::check() const {
  if (clock_.monotonic() <= end_) return {};
  return query_too_large("the query read for two seconds and was stopped");
}

Error query_too_large(std::string_view what) {
  return invalid_argument(
      std::string(what) + "; ask for a shorter time, or name a session, run, request, sampler, service or user",
      "query_too_large");
}

Conditions conditions_of_spans(const Viewer& viewer, const Filter& filter) {
  Conditions conditions{.viewer = viewer, .filter = filter};
  conditions.entries_only = filter.name.empty() && filter.text.empty();
  return conditions;
}

Status check_filter(const Filter& filter) {
  for (const std::string* text : {&filter.session, &filter.run, &filter.sampler, &filter.request, &filter.operation,
                                  &filter.base_model, &filter.user, &filter.service, &filter.name, &filter.text}) {
    if (text->size() > kFilterTextMax)
      return invalid_argument("a value of the filter has more than " + std::to_string(kFilterTextMax) + " bytes");
  }
  if (filter.time.until != 0 && filter.time.until <= filter.time.from)
    return invalid_argument("the time range ends before it begins: `until` must be after `from`");
  return {};
}

Nanos end_of(const TimeRange& time) {
  return time.until == 0 ? std::numeric_limits<Nanos>::max() : time.until;
}

bool may_see(const Viewer& viewer, std::string_view owner) {
  return viewer.all || (!viewer.user.empty() && owner == viewer.user);
}

bool may_match(const Segment& segment, Table table, const Conditions& conditions) {
  const Filter& filter = conditions.filter;
  const Extent extent = segment.extent();
  if (extent.rows_of(table) == 0 || extent.newest_of(table) < filter.time.from ||
      extent.oldest_of(table) >= end_of(filter.time))
    return false;
  if (!conditions.viewer.all && (conditions.viewer.user.empty() || !may_have_text(segment, conditions.viewer.user)))
    return false;
  if (conditions.trace.valid() && !segment.may_have(hash_of_trace(conditions.trace))) return false;
  for (const KeyCondition& condition : key_conditions(filter)) {
    if (!may_have_text(segment, condition.value)) return false;
  }
  const std::vector<std::string_view> names = alternatives_of(filter.name);
  const auto may_have_name = [&](std::string_view name) { return is_prefix(name) || may_have_text(segment, name); };
  if (!filter.name.empty() && std::none_of(names.begin(), names.end(), may_have_name)) return false;
  return (filter.user.empty() || may_have_text(segment, filter.user)) &&
         (filter.service.empty() || may_have_text(segment, filter.service));
}

std::vector<char> visible_contexts(Rows& rows, const Viewer& viewer) {
  std::vector<char> visible;
  for (const Context& context : rows.contexts()) visible.push_back(may_see(viewer, context.owner) ? 1 : 0);
  return visible;
}

Result<std::vector<uint32_t>> select_rows(Rows& rows, const Conditions& conditions, const Deadline& deadline) {
  const Filter& filter = conditions.filter;
  const bool spans = rows.table() == Table::kSpans;
  std::vector<uint32_t> selected;
  bool all = true;
  const auto keep = [&](const auto& condition) { narrow_down(selected, all, rows.count(), condition); };

  if (conditions.trace.valid()) {
    keep([&low = rows.wide(Column::kTraceLow), &conditions](uint32_t row) { return low[row] == conditions.trace.low; });
    keep([&](uint32_t row) { return rows.wide(Column::kTraceHigh, row) == conditions.trace.high; });
  }
  if (conditions.span != 0) {
    keep([&ids = rows.wide(Column::kId), id = conditions.span](uint32_t row) { return ids[row] == id; });
  }
  for (const KeyCondition& condition : key_conditions(filter)) {
    const auto number = rows.segment().find_string(condition.value);
    if (!number) return std::vector<uint32_t>{};
    keep([&values = rows.narrow(condition.column), number = *number](uint32_t row) { return values[row] == number; });
  }
  if (is_prefix(filter.name) || filter.name.find('|') != std::string::npos) {
    const std::vector<char> matches = matching_names(rows.strings(), filter.name);
    keep([&, &names = rows.narrow(Column::kName)](uint32_t row) {
      return names[row] < matches.size() && matches[names[row]] != 0;
    });
  } else if (!filter.name.empty()) {
    const auto number = rows.segment().find_string(filter.name);
    if (!number) return std::vector<uint32_t>{};
    keep([&names = rows.narrow(Column::kName), number = *number](uint32_t row) { return names[row] == number; });
  }
  std::vector<char> contexts = visible_contexts(rows, conditions.viewer);
  for (size_t i = 0; i < contexts.size(); ++i) {
    const Context& context = rows.contexts()[i];
    if (!filter.user.empty() && context.owner != filter.user) contexts[i] = 0;
    if (!filter.service.empty() && context.service != filter.service) contexts[i] = 0;
    if (filter.of_server && context.of_program) contexts[i] = 0;
  }
  // Always checked, whatever else is asked: this is what keeps users apart.
  if (std::find(contexts.begin(), contexts.end(), 1) == contexts.end()) return std::vector<uint32_t>{};
  if (std::find(contexts.begin(), contexts.end(), 0) != contexts.end() || !conditions.viewer.all) {
    keep([&, &numbers = rows.narrow(Column::kContext)](uint32_t row) {
      return numbers[row] < contexts.size() && contexts[numbers[row]] != 0;
    });
  }
  if (spans && (conditions.entries_only || filter.failed)) {
    const uint8_t mask = (conditions.entries_only ? span_flag::kEntry : 0) | (filter.failed ? span_flag::kFailed : 0);
    const uint8_t wanted =
        (conditions.entries_only ? span_flag::kEntry : 0) | (filter.failed.value_or(false) ? span_flag::kFailed : 0);
    keep([&flags = rows.flags(), mask, wanted](uint32_t row) { return (flags[row] & mask) == wanted; });
  } else if (!spans && (conditions.severity_min > 0 || filter.failed)) {
    keep([&flags = rows.flags(), &conditions, &filter](uint32_t row) {
      return flags[row] >= conditions.severity_min &&
             (!filter.failed || (flags[row] >= kSeverityError) == *filter.failed);
    });
  }
  if (spans && (filter.duration_min || filter.duration_max)) {
    const auto least = static_cast<uint64_t>(std::max<Nanos>(0, filter.duration_min.value_or(0)));
    const auto most =
        static_cast<uint64_t>(std::max<Nanos>(0, filter.duration_max.value_or(std::numeric_limits<Nanos>::max())));
    keep([&durations = rows.wide(Column::kDuration), least, most](uint32_t row) {
      return both(durations[row] >= least, durations[row] <= most);
    });
  }
  const Nanos end = end_of(filter.time);
  if (all || rows.extent().oldest_of(rows.table()) < filter.time.from || rows.extent().newest_of(rows.table()) >= end) {
    keep([&times = rows.wide(Column::kTime), from = filter.time.from, end](uint32_t row) {
      const auto time = static_cast<Nanos>(times[row]);
      return both(time >= from, time < end);
    });
  }
  if (!filter.text.empty() && !selected.empty()) TUFT_TRY(select_by_text(rows, filter.text, selected, deadline));
  if (rows.failed()) selected.clear();
  return selected;
}

Status read_records_of(Rows& rows, const std::vector<uint32_t>& selected, const Deadline& deadline,
                       const std::function<bool(uint32_t, std::string_view)>& visit) {
  return read_pieces(rows, selected, deadline, [&](const Piece& piece) {
    for (const uint32_t row : piece.rows) {
      const auto record = record_of(rows, piece, row);
      if (record && !visit(row, *record)) return false;
    }
    return true;
  });
}

}  // namespace tuft::telemetry_store::internal
