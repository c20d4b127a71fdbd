// Lists of traces: first the newest span of each trace that meets the filter, then the summary of each trace.
#include <algorithm>
#include <bitset>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "telemetry_store/cursor.h"
#include "telemetry_store/hash.h"
#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/selection.h"
#include "telemetry_store/span_query.h"

namespace tuft::telemetry_store::internal {
namespace {

struct HashOfTrace {
  size_t operator()(const TraceId& id) const { return hash_of_trace(id); }
};

// The newest span of a trace that met the filter. Lists are in descending order of (time, trace).
struct Match {
  Nanos time = 0;
  TraceId trace;
  size_t segment = 0;
  uint32_t row = 0;
};

bool is_newer(const Match& a, const Match& b) {
  if (a.time != b.time) return a.time > b.time;
  return a.trace.high != b.trace.high ? a.trace.high > b.trace.high : a.trace.low > b.trace.low;
}

// The newest `limit` traces.
class NewestTraces {
 public:
  NewestTraces(size_t limit, std::optional<Match> before) : limit_(limit), before_(before) {}

  // Nothing older than this can enter the list any more.
  Nanos oldest_wanted() const { return oldest_wanted_; }

  void add(const Match& match) {
    if (match.time < oldest_wanted_ || (before_ && !is_newer(*before_, match))) return;
    const auto [found, added] = newest_.try_emplace(match.trace, match);
    if (!added && is_newer(match, found->second)) found->second = match;
    if (newest_.size() > 4 * limit_ + 64) shrink();
  }

  // Forgets the traces that are not among the newest. One more than the limit is kept, so that it is known whether
  // there are more.
  void shrink() {
    if (newest_.size() <= limit_ + 1) return;
    std::vector<Match> matches = sorted();
    matches.resize(limit_ + 1);
    oldest_wanted_ = matches.back().time;
    was_cut_ = true;
    newest_.clear();
    for (const Match& match : matches) newest_.emplace(match.trace, match);
  }

  // `more`: there are traces after these.
  std::vector<Match> take(bool& more) {
    std::vector<Match> matches = sorted();
    more = matches.size() > limit_ || was_cut_;
    if (matches.size() > limit_) matches.resize(limit_);
    return matches;
  }

 private:
  std::vector<Match> sorted() const {
    std::vector<Match> matches;
    for (const auto& [trace, match] : newest_) matches.push_back(match);
    std::sort(matches.begin(), matches.end(), is_newer);
    return matches;
  }

  const size_t limit_;
  const std::optional<Match> before_;
  Nanos oldest_wanted_ = std::numeric_limits<Nanos>::min();
  bool was_cut_ = false;
  std::unordered_map<TraceId, Match, HashOfTrace> newest_;
};

// The spans of one user that met the filter, in a trace that several users share.
struct MatchesOfOwner {
  std::pair<bool, Nanos> first = {true, std::numeric_limits<Nanos>::max()};  // whether it is of a program, and its time
  Match newest;
};

struct Candidate {
  TraceSummary summary;
  Match match;
  std::string owner;    // of the match
  std::string someone;  // an owner of its spans
  bool is_shared = false;
  std::map<std::string, MatchesOfOwner> by_owner;  // if it is shared
  Nanos end = 0;
  Nanos root_start = 0;
  bool has_own = false;        // a span that counts for more than the number of spans
  bool has_root = false;       // the span without a parent
  bool is_repetition = false;  // a newer match stood on an earlier page
};

class TraceList {
 public:
  TraceList(const Segments& segments, Conditions conditions, const Deadline& deadline)
      : segments_(segments), conditions_(std::move(conditions)), deadline_(deadline) {}

  Result<TracePage> page(size_t limit, std::optional<Match> before) {
    TracePage page;
    bool more = true;
    // A page whose traces all stood on earlier pages is no answer.
    while (more && page.traces.empty()) {
      TUFT_ASSIGN(std::vector<Match> matches, newest_matches(limit, before, more));
      if (matches.empty()) return page;
      TUFT_TRY(summarize(matches, before));
      before = matches.back();
      for (Candidate& candidate : candidates_) {
        if (!candidate.is_repetition && candidate.summary.spans > 0)
          page.traces.push_back(std::move(candidate.summary));
      }
    }
    if (more && before) page.next = encode_cursor({before->time, before->trace.high, before->trace.low});
    return page;
  }

 private:
  Result<std::vector<Match>> newest_matches(size_t limit, const std::optional<Match>& before, bool& more) {
    std::vector<std::pair<Nanos, size_t>> order;
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (may_match(*segments_[i], Table::kSpans, conditions_))
        order.emplace_back(segments_[i]->extent().newest_of(Table::kSpans), i);
    }
    std::sort(order.rbegin(), order.rend());
    NewestTraces newest(limit, before);
    bool ended_early = false;
    for (const auto& [time, i] : order) {
      if (time < newest.oldest_wanted()) {
        ended_early = true;
        break;
      }
      TUFT_TRY(deadline_.check());
      Rows rows(segments_[i], Table::kSpans);
      Conditions wanted = conditions_;
      wanted.filter.time.from = std::max(wanted.filter.time.from, newest.oldest_wanted());
      if (before) wanted.filter.time.until = std::min(end_of(wanted.filter.time), before->time + 1);
      TUFT_ASSIGN(const std::vector<uint32_t> selected, select_rows(rows, wanted, deadline_));
      for (auto row = selected.rbegin(); row != selected.rend(); ++row)
        newest.add({rows.time(*row), rows.trace(*row), i, *row});
      newest.shrink();
    }
    std::vector<Match> matches = newest.take(more);
    more = more || ended_early;
    return matches;
  }

  Status summarize(const std::vector<Match>& matches, const std::optional<Match>& before) {
    candidates_.clear();
    places_.clear();
    low_bits_.reset();
    std::map<size_t, Rows> rows_of;
    for (const Match& match : matches) {
      places_.emplace(match.trace, candidates_.size());
      low_bits_.set(match.trace.low % low_bits_.size());
      Candidate& candidate = candidates_.emplace_back();
      candidate.match = match;
      Rows& rows = rows_of.try_emplace(match.segment, segments_[match.segment], Table::kSpans).first->second;
      candidate.owner = rows.context(match.row).owner;
      candidate.summary.trace_id = hex_of(match.trace);
    }
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (!may_have_one(i)) continue;
      TUFT_TRY(deadline_.check());
      Rows rows(segments_[i], Table::kSpans);
      if (before) TUFT_TRY(find_repetitions(rows, *before));
      add_segment(rows, i, false);
    }
    return settle_shared();
  }

  bool may_have_one(size_t segment) const {
    return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
      return segments_[segment]->may_have(hash_of_trace(candidate.match.trace));
    });
  }

  // Whoever knows the id of a trace can add spans to it. The newest match of all would make the row that of another
  // user each time: it is that of the user with the first match, those of the server before those of programs, as the
  // trace itself is shown (control/observe).
  Status settle_shared() {
    const auto is_shared = [](const Candidate& candidate) { return candidate.is_shared; };
    if (std::none_of(candidates_.begin(), candidates_.end(), is_shared)) return {};
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (!may_have_one(i)) continue;
      Rows rows(segments_[i], Table::kSpans);
      TUFT_ASSIGN(const std::vector<uint32_t> selected, select_rows(rows, conditions_, deadline_));
      for (const uint32_t row : selected) {
        Candidate* candidate = find(rows.trace(row));
        if (candidate != nullptr && candidate->is_shared) note_match(*candidate, rows, row, i);
      }
    }
    for (Candidate& candidate : candidates_) {
      if (candidate.is_shared) settle(candidate);
    }
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (!may_have_one(i)) continue;
      TUFT_TRY(deadline_.check());
      Rows rows(segments_[i], Table::kSpans);
      add_segment(rows, i, true);
    }
    return {};
  }

  static void note_match(Candidate& candidate, Rows& rows, uint32_t row, size_t segment) {
    const Context& context = rows.context(row);
    if (context.owner.empty()) return;
    MatchesOfOwner& matches = candidate.by_owner[context.owner];
    const Match match{rows.time(row), rows.trace(row), segment, row};
    matches.first = std::min(matches.first, std::pair(context.of_program, match.time));
    if (match.time >= matches.newest.time) matches.newest = match;
  }

  // Begins the summary anew, for the owner of the first match.
  static void settle(Candidate& candidate) {
    const auto first = std::min_element(candidate.by_owner.begin(), candidate.by_owner.end(),
                                        [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
    Candidate settled;
    settled.summary.trace_id = candidate.summary.trace_id;
    settled.match = first == candidate.by_owner.end() ? candidate.match : first->second.newest;
    settled.owner = first == candidate.by_owner.end() ? candidate.owner : first->first;
    settled.is_shared = true;
    settled.is_repetition = candidate.is_repetition;
    candidate = std::move(settled);
  }

  Candidate* find(const TraceId& trace) {
    const auto found = places_.find(trace);
    return found == places_.end() ? nullptr : &candidates_[found->second];
  }

  // Marks the traces that have a match at or before the end of the page before.
  Status find_repetitions(Rows& rows, const Match& before) {
    if (rows.extent().newest_of(Table::kSpans) < before.time) return {};
    Conditions newer = conditions_;
    newer.filter.time.from = std::max(newer.filter.time.from, before.time);
    TUFT_ASSIGN(const std::vector<uint32_t> selected, select_rows(rows, newer, deadline_));
    for (const uint32_t row : selected) {
      Candidate* candidate = find(rows.trace(row));
      if (candidate != nullptr && !is_newer(before, {rows.time(row), rows.trace(row)})) candidate->is_repetition = true;
    }
    return {};
  }

  void add_segment(Rows& rows, size_t segment, bool only_shared) {
    const std::vector<char> visible = visible_contexts(rows, conditions_.viewer);
    const std::vector<uint64_t>& low = rows.wide(Column::kTraceLow);
    for (uint32_t row = 0; row < rows.count(); ++row) {
      if (!low_bits_.test(low[row] % low_bits_.size())) continue;
      Candidate* candidate = find(rows.trace(row));
      const uint32_t context = rows.narrow(Column::kContext, row);
      if (candidate == nullptr || context >= visible.size() || visible[context] == 0 || rows.failed()) continue;
      if (only_shared && !candidate->is_shared) continue;
      add_span(rows, row, *candidate);
      if (candidate->match.segment == segment && candidate->match.row == row) set_match(rows, row, *candidate);
    }
  }

  static void add_span(Rows& rows, uint32_t row, Candidate& candidate) {
    TraceSummary& summary = candidate.summary;
    const Nanos start = rows.time(row);
    const Nanos end = start + rows.duration(row);
    const bool is_root = rows.wide(Column::kParent, row) == 0;
    const bool has_failed = (rows.flags(row) & span_flag::kFailed) != 0;
    if (rows.failed()) return;
    ++summary.spans;
    if (has_failed) ++summary.failed_spans;
    // Whoever knows the id of a trace can send spans with it: they say nothing about what another user did.
    const Context& context = rows.context(row);
    if (candidate.someone.empty()) candidate.someone = context.owner;
    if (!context.owner.empty() && context.owner != candidate.someone) candidate.is_shared = true;
    if (context.of_program && context.owner != candidate.owner) return;
    const bool first = !std::exchange(candidate.has_own, true);
    summary.start = first ? start : std::min(summary.start, start);
    candidate.end = first ? end : std::max(candidate.end, end);
    summary.duration = candidate.end - summary.start;
    if (first || (is_root && !candidate.has_root) || (is_root == candidate.has_root && start < candidate.root_start)) {
      candidate.has_root = is_root;
      candidate.root_start = start;
      summary.root_name = clean_text(rows.text(Column::kName, row), kNameMax);
      summary.root_service = clean_text(rows.context(row).service, kNameMax);
      summary.root_span_id = hex_of(rows.wide(Column::kId, row));
    }
    if (summary.owner.empty()) summary.owner = rows.context(row).owner;
    for (size_t key = 0; key < kKeys; ++key) {
      std::string& text = key_of(summary, static_cast<Key>(key));
      if (text.empty()) text = clean_text(rows.text(column_of(static_cast<Key>(key)), row), kNameMax);
    }
  }

  // What the matched span says goes before what other spans say.
  static void set_match(Rows& rows, uint32_t row, Candidate& candidate) {
    TraceSummary& summary = candidate.summary;
    summary.matched_span_id = hex_of(rows.wide(Column::kId, row));
    summary.matched_name = clean_text(rows.text(Column::kName, row), kNameMax);
    summary.matched_duration = rows.duration(row);
    if (!rows.context(row).owner.empty()) summary.owner = rows.context(row).owner;
    for (size_t key = 0; key < kKeys; ++key) {
      const std::string_view text = rows.text(column_of(static_cast<Key>(key)), row);
      if (!text.empty()) key_of(summary, static_cast<Key>(key)) = clean_text(text, kNameMax);
    }
  }

  static std::string& key_of(TraceSummary& summary, Key key) {
    switch (key) {
      case Key::kSession:
        return summary.session;
      case Key::kRun:
        return summary.run;
      case Key::kSampler:
        return summary.sampler;
      case Key::kRequest:
        return summary.request;
      case Key::kOperation:
        return summary.operation;
      case Key::kBaseModel:
        break;
    }
    return summary.base_model;
  }

  static constexpr size_t kNameMax = 512;

  const Segments& segments_;
  const Conditions conditions_;
  const Deadline& deadline_;
  std::vector<Candidate> candidates_;
  std::unordered_map<TraceId, size_t, HashOfTrace> places_;
  std::bitset<8192> low_bits_;  // a quick check for most rows
};

}  // namespace

Result<TracePage> find_traces(const Segments& segments, const Viewer& viewer, const Filter& filter, const PageOf& page,
                              const Clock& clock) {
  TUFT_TRY(check_filter(filter));
  std::optional<Match> before;
  if (!page.cursor.empty()) {
    TUFT_ASSIGN(const Cursor cursor, decode_cursor(page.cursor));
    before = Match{cursor.time, {cursor.first, cursor.second}};
  }
  const Deadline deadline(clock);
  const size_t limit = std::clamp<size_t>(page.limit, 1, kTracesMax);
  return TraceList(segments, conditions_of_spans(viewer, filter), deadline).page(limit, before);
}

}  // namespace tuft::telemetry_store::internal
