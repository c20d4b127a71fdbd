// One trace with its log records and the spans that link to it.
#include <algorithm>
#include <map>
#include <utility>

#include "telemetry_store/hash.h"
#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/selection.h"
#include "telemetry_store/span_query.h"

namespace tuft::telemetry_store::internal {
namespace {

// The memory of one answer.
constexpr size_t kTraceBytesMax = size_t{64} << 20;

class TraceReader {
 public:
  TraceReader(const Segments& segments, const Viewer& viewer, const TraceId& id, const Deadline& deadline)
      : segments_(segments), viewer_(viewer), id_(id), deadline_(deadline) {}

  Result<Trace> read(size_t spans_max) {
    Trace trace;
    TUFT_TRY(read_table<Span>(Table::kSpans, spans_max, trace.truncated, trace.spans, decode_span));
    if (trace.spans.empty())
      return not_found("there is no trace with this id, or none of its spans is yours; old traces are dropped");
    bool logs_cut = false;
    TUFT_TRY(read_table<LogRecord>(Table::kLogs, kLogsOfTraceMax, logs_cut, trace.logs, decode_log));
    trace.memory_bytes = memory_bytes_;
    std::stable_sort(trace.spans.begin(), trace.spans.end(),
                     [](const Span& a, const Span& b) { return a.start < b.start; });
    std::stable_sort(trace.logs.begin(), trace.logs.end(),
                     [](const LogRecord& a, const LogRecord& b) { return a.time < b.time; });
    TUFT_TRY(find_linked(trace));
    return trace;
  }

 private:
  // Reads the earliest `count_max` records of the trace.
  template <typename Record, typename Decode>
  Status read_table(Table table, size_t count_max, bool& truncated, std::vector<Record>& out, const Decode& decode) {
    Conditions conditions;
    conditions.viewer = viewer_;
    conditions.trace = id_;
    std::vector<FoundRow> found;
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (!may_match(*segments_[i], table, conditions)) continue;
      Rows rows(segments_[i], table);
      TUFT_ASSIGN(const std::vector<uint32_t> selected, select_rows(rows, conditions, deadline_));
      for (const uint32_t row : selected) found.push_back({rows.time(row), i, row});
    }
    std::stable_sort(found.begin(), found.end(), [](const FoundRow& a, const FoundRow& b) { return a.time < b.time; });
    truncated = found.size() > count_max;
    if (truncated) found.resize(count_max);
    std::map<size_t, std::vector<uint32_t>> by_segment;
    for (const FoundRow& one : found) by_segment[one.segment].push_back(one.row);
    for (auto& [segment, selected] : by_segment) {
      if (is_full_) break;
      Rows rows(segments_[segment], table);
      std::sort(selected.begin(), selected.end());
      TUFT_TRY(read_records_of(rows, selected, deadline_, [&](uint32_t row, std::string_view record) {
        Record decoded;
        if (!decode(record, decoded)) return true;
        const Context& context = rows.context(row);
        set_by_index(rows, row, context, decoded);
        decoded.service = clean_text(context.service, kNameMax);
        decoded.worker = clean_text(context.worker, kNameMax);
        decoded.scope = clean_text(context.scope, kNameMax);
        decoded.owner = context.owner;
        const size_t bytes = memory_of(decoded);
        is_full_ = memory_bytes_ + bytes > kTraceBytesMax;
        if (is_full_) return false;
        memory_bytes_ += bytes;
        out.push_back(std::move(decoded));
        return true;
      }));
    }
    truncated = truncated || is_full_;
    return {};
  }

  // Times as the store has them: those that a record claims may be impossible.
  static void set_by_index(Rows& rows, uint32_t row, const Context& context, Span& span) {
    span.start = rows.time(row);
    span.duration = rows.duration(row);
    span.of_program = context.of_program;
  }
  static void set_by_index(Rows& rows, uint32_t row, const Context&, LogRecord& log) { log.time = rows.time(row); }

  Status find_linked(Trace& trace) {
    const uint64_t hash = hash_of_link(id_);
    for (size_t i = segments_.size(); i-- > 0 && trace.linked_from.size() < kLinkedFromMax;) {
      if (!segments_[i]->may_have(hash)) continue;
      TUFT_TRY(deadline_.check());
      Rows links(segments_[i], Table::kLinks);
      Rows spans(segments_[i], Table::kSpans);
      const std::vector<uint64_t>& low = links.wide(Column::kTraceLow);
      for (uint32_t link = 0; link < links.count(); ++link) {
        if (low[link] != id_.low || links.trace(link) != id_ || trace.linked_from.size() >= kLinkedFromMax) continue;
        const uint32_t row = links.narrow(Column::kPosition, link);
        if (row >= spans.count() || !may_see(viewer_, spans.context(row).owner) || spans.failed()) continue;
        trace.linked_from.push_back({hex_of(spans.trace(row)), hex_of(spans.wide(Column::kId, row)),
                                     clean_text(spans.text(Column::kName, row), kNameMax),
                                     hex_of(links.wide(Column::kId, link))});
      }
    }
    return {};
  }

  static constexpr size_t kNameMax = 512;

  const Segments& segments_;
  const Viewer& viewer_;
  const TraceId id_;
  const Deadline& deadline_;
  size_t memory_bytes_ = 0;
  bool is_full_ = false;
};

}  // namespace

Result<Trace> read_trace(const Segments& segments, const Viewer& viewer, std::string_view trace_id, size_t spans_max,
                         const Clock& clock) {
  const TraceId id = parse_trace_id(trace_id);
  if (!id.valid()) return invalid_argument("the id of a trace has 32 hexadecimal digits");
  const Deadline deadline(clock);
  return TraceReader(segments, viewer, id, deadline).read(std::clamp<size_t>(spans_max, 1, kSpansMax));
}

}  // namespace tuft::telemetry_store::internal
