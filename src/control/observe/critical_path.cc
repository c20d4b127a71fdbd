#include "control/observe/critical_path.h"

#include <algorithm>
#include <limits>
#include <ranges>
#include <string_view>
#include <unordered_map>

namespace tuft::control {
namespace {

using telemetry_store::Span;

constexpr size_t kNobody = std::numeric_limits<size_t>::max();

// The spans of a trace as a tree, without recursion, because users' programs choose how deep it is.
class Tree {
 public:
  explicit Tree(const std::vector<Span>& spans) : spans_(spans), children_(spans.size()), end_(spans.size()) {
    std::unordered_map<std::string_view, size_t> by_id;
    for (size_t i = 0; i < spans.size(); ++i) by_id.emplace(spans[i].span_id, i);
    for (size_t i = 0; i < spans.size(); ++i) {
      const auto parent = by_id.find(spans[i].parent_id);
      const bool is_root = spans[i].parent_id.empty() || parent == by_id.end() || parent->second == i;
      (is_root ? roots_ : children_[parent->second]).push_back(i);
    }
    set_ends();
  }

  const std::vector<size_t>& roots() const { return roots_; }
  // Those that ended last come first.
  const std::vector<size_t>& children(size_t span) const { return children_[span]; }
  Nanos start(size_t span) const { return spans_[span].start; }
  // The end of the span and of all below it.
  Nanos end(size_t span) const { return end_[span]; }

 private:
  void set_ends() {
    std::vector<size_t> order = roots_;  // parents before their children
    for (size_t at = 0; at < order.size(); ++at) {
      const size_t span = order[at];
      end_[span] = spans_[span].start + spans_[span].duration;
      order.insert(order.end(), children_[span].begin(), children_[span].end());
    }
    const auto later = [this](size_t a, size_t b) { return end_[a] > end_[b]; };
    for (const size_t span : std::views::reverse(order)) {
      std::stable_sort(children_[span].begin(), children_[span].end(), later);
      if (!children_[span].empty()) end_[span] = std::max(end_[span], end_[children_[span].front()]);
    }
    std::stable_sort(roots_.begin(), roots_.end(), later);
  }

  const std::vector<Span>& spans_;
  std::vector<std::vector<size_t>> children_;
  std::vector<size_t> roots_;
  std::vector<Nanos> end_;
};

class Walk {
 public:
  explicit Walk(const Tree& tree) : tree_(tree) {}

  std::vector<PathPiece> pieces() {
    const std::vector<size_t>& roots = tree_.roots();
    if (roots.empty()) return {};
    stack_.push_back({kNobody, &roots, 0, tree_.end(roots.front()), std::numeric_limits<Nanos>::min()});
    while (!stack_.empty()) step();
    std::reverse(pieces_.begin(), pieces_.end());
    return std::move(pieces_);
  }

 private:
  struct Visit {
    size_t span;
    const std::vector<size_t>* children;
    size_t next;   // child to look at
    Nanos cursor;  // what comes after it has been given away
    Nanos floor;   // where the span begins, within those above it
  };

  void step() {
    Visit& top = stack_.back();
    while (top.next < top.children->size()) {
      const size_t child = (*top.children)[top.next++];
      const Nanos end = std::min(tree_.end(child), top.cursor);
      const Nanos start = std::max(tree_.start(child), top.floor);
      if (start >= end) continue;
      give(top.span, end, top.cursor);
      top.cursor = start;
      stack_.push_back({child, &tree_.children(child), 0, end, start});
      return;
    }
    give(top.span, top.floor, top.cursor);
    stack_.pop_back();
  }

  void give(size_t span, Nanos from, Nanos until) {
    if (span == kNobody || from >= until) return;
    const bool continues = !pieces_.empty() && pieces_.back().span == span && pieces_.back().start == until;
    if (!continues) return pieces_.push_back({span, from, until - from});
    pieces_.back().start = from;
    pieces_.back().duration += until - from;
  }

  const Tree& tree_;
  std::vector<Visit> stack_;
  std::vector<PathPiece> pieces_;  // the last one first
};

}  // namespace

std::vector<PathPiece> critical_path(const telemetry_store::Trace& trace) {
  const Tree tree(trace.spans);
  return Walk(tree).pieces();
}

}  // namespace tuft::control
