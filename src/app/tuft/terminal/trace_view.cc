#include "app/tuft/terminal/trace_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/tuft/terminal/lists.h"
#include "app/tuft/terminal/table.h"
#include "app/tuft/terminal/units.h"

namespace tuft::terminal {
namespace {

constexpr size_t kWidthMin = 60;
constexpr size_t kDurationColumns = 9;
constexpr size_t kIndentMax = 24;
constexpr size_t kLogsOfSpanMax = 20;
constexpr size_t kLinksMax = 20;
constexpr double kShareMin = 0.005;  // smaller parts of the time are not shown

struct Node {
  const Json* span = nullptr;
  size_t depth = 0;
};

// Returns the spans in the order of a tree: each before its children, these by their start. Spans whose parent is not
// there are roots, and so is one of each cycle, which no honest sender makes.
std::vector<Node> in_tree_order(const Json& spans) {
  std::map<std::string, const Json*> by_id;
  for (const Json& span : spans) by_id.emplace(text_of(span, "span_id"), &span);
  std::map<std::string, std::vector<const Json*>> children;
  std::vector<const Json*> roots;
  for (const Json& span : spans) {
    const std::string parent = text_of(span, "parent_id");
    const bool is_root = parent.empty() || !by_id.contains(parent) || parent == text_of(span, "span_id");
    (is_root ? roots : children[parent]).push_back(&span);
  }
  const auto earlier = [](const Json* a, const Json* b) {
    return number_of(*a, "start").value_or(0) < number_of(*b, "start").value_or(0);
  };
  std::vector<Node> order, stack;
  std::set<const Json*> seen;
  const auto walk = [&](std::vector<const Json*> from, size_t depth) {
    std::stable_sort(from.begin(), from.end(), earlier);
    for (auto span = from.rbegin(); span != from.rend(); ++span) stack.push_back({*span, depth});
  };
  const auto finish = [&] {
    while (!stack.empty()) {
      const Node node = stack.back();
      stack.pop_back();
      if (!seen.insert(node.span).second) continue;
      order.push_back(node);
      const auto found = children.find(text_of(*node.span, "span_id"));
      if (found != children.end()) walk(found->second, node.depth + 1);
    }
  };
  walk(std::move(roots), 0);
  finish();
  for (const Json& span : spans) {
    if (seen.contains(&span)) continue;
    stack.push_back({&span, 0});
    finish();
  }
  return order;
}

class Waterfall {
 public:
  Waterfall(const Json& trace, const TraceViewOptions& options)
      : trace_(trace),
        width_(std::max(options.width, kWidthMin)),
        bar_columns_(width_ * 2 / 5),
        name_columns_(width_ - bar_columns_ - kDurationColumns - 4),
        block_(options.block_characters ? "█" : "#"),
        start_(number_of(trace, "start").value_or(0)),
        duration_(std::max(number_of(trace, "duration").value_or(0), 1.0)) {
    for (const Json& piece : list_of(trace, "critical_path")) critical_.insert(text_of(piece, "span_id"));
    for (const Json& record : list_of(trace, "logs")) logs_[text_of(record, "span_id")].push_back(&record);
  }

  void append(Lines& lines, size_t spans_max) {
    const std::vector<Node> order = in_tree_order(list_of(trace_, "spans"));
    lines.push_back(scale());
    for (size_t i = 0; i < std::min(order.size(), spans_max); ++i) append_span(lines, order[i]);
    if (order.size() > spans_max) {
      lines.emplace_back("... " + std::to_string(order.size() - spans_max) + " more spans; --spans " +
                             std::to_string(order.size()) + " shows them",
                         Style::kYellow);
    }
    if (flag_of(trace_, "truncated")) {
      lines.emplace_back("The trace is longer than the server returns; its earliest spans are here.", Style::kYellow);
    }
    const auto outside = logs_.find("");
    if (outside == logs_.end()) return;
    lines.emplace_back();
    lines.emplace_back("Log records outside of spans", Style::kBold);
    append_logs(lines, outside->second, 2);
  }

 private:
  Line scale() const {
    Line line("SPAN", Style::kBold);
    line.to(name_columns_ + 3);
    const std::string end = duration_text(duration_);
    line.add("0" + right_aligned(end, bar_columns_ - 1), Style::kDim);
    line.add(" " + right_aligned("DURATION", kDurationColumns), Style::kBold);
    return line;
  }

  std::string bar(const Json& span) const {
    const double from = (number_of(span, "start").value_or(start_) - start_) / duration_;
    const double share = number_of(span, "duration").value_or(0) / duration_;
    const auto cells = static_cast<double>(bar_columns_);
    const auto first = static_cast<size_t>(std::clamp(std::floor(from * cells), 0.0, cells - 1));
    const auto last =
        static_cast<size_t>(std::clamp(std::ceil((from + share) * cells), static_cast<double>(first) + 1, cells));
    std::string out(first, ' ');
    for (size_t i = first; i < last; ++i) out += block_;
    return out;
  }

  void append_span(Lines& lines, const Node& node) {
    const Json& span = *node.span;
    const std::string id = text_of(span, "span_id");
    const bool failed = flag_of(span, "failed"), critical = critical_.contains(id);
    const size_t indent = std::min(node.depth * 2, kIndentMax);
    const std::string worker = text_of(span, "worker");
    const std::string name =
        std::string(indent, ' ') + text_of(span, "name") + (worker.empty() ? "" : " [" + worker + "]");
    const Style style = failed ? Style::kRed : critical ? Style::kYellow : Style::kCyan;
    Line line(failed ? "!" : " ", Style::kRed);
    line.add(critical ? "*" : " ", Style::kYellow);
    line.add(left_aligned(name, name_columns_) + " ", failed ? Style::kRed : Style::kPlain);
    line.add(left_aligned(bar(span), bar_columns_), style);
    line.add(" " + right_aligned(duration_text(number_of(span, "duration")), kDurationColumns));
    lines.push_back(std::move(line));
    const size_t inner = indent + 4;
    if (const std::string message = text_of(span, "status_message"); !message.empty()) {
      lines.emplace_back(cut(std::string(inner, ' ') + message, width_), Style::kRed);
    }
    for (const Json& link : list_of(span, "links")) {
      const std::string other = text_of(link, "trace_id");
      if (other == text_of(trace_, "trace_id") || links_++ >= kLinksMax) continue;
      lines.emplace_back(std::string(inner, ' ') + "-> trace " + other, Style::kDim);
    }
    if (const auto found = logs_.find(id); found != logs_.end()) append_logs(lines, found->second, inner);
  }

  void append_logs(Lines& lines, const std::vector<const Json*>& records, size_t indent) const {
    for (size_t i = 0; i < std::min(records.size(), kLogsOfSpanMax); ++i) {
      Json record = *records[i];
      if (record.is_object()) record.erase("trace_id");
      Line line(std::string(indent, ' '));
      line.add(log_line(record).plain(width_ - indent), style_of_level(text_of(record, "level")));
      lines.push_back(std::move(line));
    }
    if (records.size() <= kLogsOfSpanMax) return;
    lines.emplace_back(std::string(indent, ' ') + "... " + std::to_string(records.size() - kLogsOfSpanMax) +
                           " more log records: tuft logs --trace " + text_of(trace_, "trace_id"),
                       Style::kDim);
  }

  const Json& trace_;
  const size_t width_, bar_columns_, name_columns_;
  const std::string block_;
  const double start_, duration_;
  std::set<std::string> critical_;
  std::map<std::string, std::vector<const Json*>> logs_;
  size_t links_ = 0;
};

void append_head(Lines& lines, const Json& trace) {
  const Json& spans = list_of(trace, "spans");
  const auto failed =
      std::count_if(spans.begin(), spans.end(), [](const Json& span) { return flag_of(span, "failed"); });
  Line head("trace " + text_of(trace, "trace_id"), Style::kBold);
  head.add("  " + duration_text(number_of(trace, "duration")));
  head.add("  " + std::to_string(spans.size()) + (spans.size() == 1 ? " span" : " spans"));
  if (failed > 0) head.add("  " + std::to_string(failed) + " failed", Style::kRed);
  lines.push_back(std::move(head));
  lines.emplace_back("  " + day_text(number_of(trace, "start")), Style::kDim);
}

void append_words(Lines& lines, const std::string& text, size_t width) {
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) lines.emplace_back("  " + line);
    line.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && columns_of(line) + columns_of(word) + 3 > width) flush();
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  flush();
}

void append_explanation(Lines& lines, const Json& trace, size_t width) {
  const Json& explanation = field_of(trace, "explanation");
  const Json& parts = list_of(explanation, "parts");
  const std::string summary = text_of(explanation, "summary");
  if (summary.empty() && parts.empty()) return;
  lines.emplace_back();
  lines.emplace_back("Where the time went", Style::kBold);
  append_words(lines, summary, width);
  for (const Json& part : parts) {
    if (number_of(part, "share").value_or(1) < kShareMin) continue;
    const std::optional<double> seconds = number_of(part, "seconds");
    Line line("  " + right_aligned(share_text(number_of(part, "share")), 5) + "  ");
    line.add(right_aligned(duration_text(seconds ? std::optional(*seconds * 1e6) : seconds), 8));
    line.add("  " + left_aligned(text_of(part, "kind"), 12), Style::kCyan);
    line.add("  " + text_of(part, "text"));
    lines.push_back(std::move(line));
  }
}

void append_linked_from(Lines& lines, const Json& trace) {
  std::vector<const Json*> others;
  for (const Json& from : list_of(trace, "linked_from")) {
    if (text_of(from, "trace_id") != text_of(trace, "trace_id")) others.push_back(&from);
  }
  if (others.empty()) return;
  lines.emplace_back();
  lines.emplace_back("Linked from", Style::kBold);
  for (size_t i = 0; i < std::min(others.size(), kLinksMax); ++i) {
    lines.emplace_back("  <- trace " + text_of(*others[i], "trace_id") + "  " + text_of(*others[i], "name"));
  }
  if (others.size() > kLinksMax) lines.emplace_back("  ... " + std::to_string(others.size() - kLinksMax) + " more");
}

}  // namespace

Lines trace_lines(const Json& trace, const TraceViewOptions& options) {
  Lines lines;
  append_head(lines, trace);
  append_explanation(lines, trace, std::max(options.width, kWidthMin));
  lines.emplace_back();
  Waterfall(trace, options).append(lines, options.spans_max);
  append_linked_from(lines, trace);
  return lines;
}

}  // namespace tuft::terminal
