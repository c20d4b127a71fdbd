#include "control/observe/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <unordered_map>

#include "control/observe/percent.h"

namespace tuft::control {
namespace {

using telemetry_store::Span;
using telemetry_store::Trace;

constexpr std::array<std::string_view, kPartKinds> kNames = {
    "queue_own", "queue_others", "sequence", "prefill", "decode", "forward", "backward", "optimizer",
    "schedule",  "store",        "network",  "save",    "paging", "server",  "other"};
// What is shorter is no reason for anything.
constexpr double kNamedShare = 0.05;
constexpr size_t kNamedParts = 3;
// Waits that are asked about one by one; further ones are divided as these are.
constexpr size_t kWaitsMax = 8;

struct KindOfName {
  std::string_view name;  // a whole name, or its beginning before '*'
  PartKind kind;
};
// The time of a span itself. The first row that matches counts.
constexpr KindOfName kKindsOfNames[] = {
    {"SCHEDULE", PartKind::kSchedule},
    {"PREFILL", PartKind::kPrefill},
    {"DECODE", PartKind::kDecode},
    {"POSTPROCESS", PartKind::kServer},
    {"PREPROCESS", PartKind::kServer},
    {"sequence_guard.wait", PartKind::kSequence},
    {"engine.forward", PartKind::kForward},
    {"engine.backward", PartKind::kBackward},
    {"engine.optim_pass", PartKind::kOptimizer},
    {"engine.step", PartKind::kDecode},
    {"hf_model.optim_step", PartKind::kOptimizer},
    {"hf_model.forward", PartKind::kForward},
    {"hf_model.forward_backward", PartKind::kBackward},
    {"hf_model.sample", PartKind::kDecode},
    {"hf_model.*", PartKind::kSave},
    {"training_controller.save_checkpoint", PartKind::kSave},
    {"training_controller.load_checkpoint", PartKind::kSave},
    {"adapter.page_*", PartKind::kPaging},
    {"redis.*", PartKind::kStore},
    {"store.*", PartKind::kStore},
    {"persistence.*", PartKind::kStore},
    {"training_backend.*", PartKind::kNetwork},
    {"sampling_backend.*", PartKind::kNetwork},
    {"training_controller.*", PartKind::kServer},
    {"sampling_controller.*", PartKind::kServer},
    {"future_store.*", PartKind::kServer},
    {"oai.*", PartKind::kServer},
};

bool is_named(const Span& span, std::string_view pattern) {
  if (pattern.ends_with('*')) return span.name.starts_with(pattern.substr(0, pattern.size() - 1));
  return span.name == pattern;
}

const std::string* find(const Span& span, std::string_view key) {
  const auto found = std::find_if(span.attributes.begin(), span.attributes.end(),
                                  [&](const telemetry_store::Attribute& one) { return one.key == key; });
  return found == span.attributes.end() ? nullptr : &found->value;
}

double number(const Span& span, std::string_view key) {
  const std::string* text = find(span, key);
  const double value = text == nullptr ? 0 : std::strtod(text->c_str(), nullptr);
  return std::isfinite(value) ? value : 0;
}

bool is_of_server(const Span& span) {
  constexpr int kServerKind = 2;  // opentelemetry.proto.trace.v1.Span.SpanKind
  return span.kind == kServerKind && find(span, "http.route") != nullptr;
}

// A pass that several requests share has forward and backward in one span.
PartKind kind_of_pass(const Span& span) {
  const std::string* backward = find(span, "tuft.backward");
  return backward != nullptr && *backward == "false" ? PartKind::kForward : PartKind::kBackward;
}

PartKind kind_of(const Span& span) {
  if (span.name == "engine.pass" || span.name == "engine.train_pass") return kind_of_pass(span);
  const auto* const row = std::find_if(std::begin(kKindsOfNames), std::end(kKindsOfNames),
                                       [&](const KindOfName& one) { return is_named(span, one.name); });
  if (row != std::end(kKindsOfNames)) return row->kind;
  return is_of_server(span) ? PartKind::kServer : PartKind::kOther;
}

std::string count(double value) {
  // An attribute of a user's program may be any number.
  constexpr double kMost = 1e15;
  return std::to_string(std::llround(std::min(value, kMost)));
}

// Collects the time by kind.
class Explainer {
 public:
  Explainer(const Trace& trace, const std::vector<PathPiece>& path, const EngineWorkIn& work)
      : trace_(trace), path_(path), work_(work), call_starts_(first_calls()) {}

  Explanation run() {
    for (const PathPiece& piece : path_) add(piece);
    divide_waits();
    Explanation explanation;
    for (const auto& [kind, part] : parts_) {
      explanation.parts.push_back(
          {kind, to_seconds(part.time), share(part.time), phrase(kind, part), trace_.spans[part.longest_span].span_id});
    }
    std::stable_sort(explanation.parts.begin(), explanation.parts.end(),
                     [](const ExplainedPart& a, const ExplainedPart& b) { return a.seconds > b.seconds; });
    explanation.summary = summary(explanation.parts);
    return explanation;
  }

 private:
  struct Part {
    Nanos time = 0;
    size_t longest_span = 0;
    Nanos longest = 0;
  };
  struct Wait {
    size_t span = 0;
    Nanos from = 0, until = 0;
  };

  // When an operation was sent to its worker, by the id of the span that sent it. Before that it waited.
  std::unordered_map<std::string_view, Nanos> first_calls() const {
    std::unordered_map<std::string_view, Nanos> starts;
    for (const Span& span : trace_.spans) {
      const bool is_step = is_named(span, "training_backend.*") || is_named(span, "sampling_backend.*") ||
                           is_named(span, "training_controller.*") || is_named(span, "sampling_controller.*") ||
                           is_named(span, "hf_model.*");
      if (!is_step || span.of_program) continue;
      const auto [place, is_new] = starts.emplace(span.parent_id, span.start);
      if (!is_new) place->second = std::min(place->second, span.start);
    }
    return starts;
  }

  // Returns until when the span's own time is waiting for a turn; its start if it is not.
  Nanos waits_until(const Span& span) const {
    const auto call = call_starts_.find(span.span_id);
    const bool has_call = call != call_starts_.end();
    const bool is_operation = span.name == "future_store.execute_operation" ||
                              is_named(span, "training_controller.*") || is_named(span, "sampling_controller.*");
    if (is_operation) return has_call ? call->second : span.start;
    // The worker reports its queue in both processes; where both spans are, that of the worker counts.
    const bool is_call = is_named(span, "training_backend.*") || is_named(span, "sampling_backend.*");
    if (!is_named(span, "hf_model.*") && (!is_call || has_call)) return span.start;
    const double queued = std::clamp(number(span, "tuft.queue_seconds"), 0.0, to_seconds(span.duration));
    return span.start + static_cast<Nanos>(queued * 1e9);
  }

  void add(const PathPiece& piece) {
    const Span& span = trace_.spans[piece.span];
    const Nanos end = piece.start + piece.duration;
    total_ += piece.duration;
    // A program may call its spans what it likes.
    if (span.of_program) return give(PartKind::kOther, piece.span, piece.duration);
    if (span.name == "SCHEDULE") return waits_.push_back({piece.span, piece.start, end});
    const Nanos split = std::clamp(waits_until(span), piece.start, end);
    if (split > piece.start) waits_.push_back({piece.span, piece.start, split});
    if (end > split) give(kind_of(span), piece.span, end - split);
  }

  void give(PartKind kind, size_t span, Nanos time) {
    if (time <= 0) return;
    Part& part = parts_[kind];
    part.time += time;
    if (time > part.longest) {
      part.longest = time;
      part.longest_span = span;
    }
  }

  void divide_waits() {
    std::stable_sort(waits_.begin(), waits_.end(),
                     [](const Wait& a, const Wait& b) { return a.until - a.from > b.until - b.from; });
    double own = 0, all = 0;  // parts of the time of the wait that was asked about last
    for (size_t i = 0; i < waits_.size(); ++i) {
      const Wait& wait = waits_[i];
      if (i < kWaitsMax && work_) {
        const EngineWork there = work_(wait.from, wait.until);
        const double time = there.of_seconds > 0 ? there.of_seconds : 1;
        own = std::max(0.0, there.own_seconds) / time;
        all = own + std::max(0.0, there.others_seconds) / time;
      }
      divide(wait, own, all);
    }
  }

  void divide(const Wait& wait, double own, double all) {
    const Nanos time = wait.until - wait.from;
    if (!(all > 0)) return give(PartKind::kSchedule, wait.span, time);
    // What no work explains was something else, such as the creation of an adapter.
    const auto part_of = [](Nanos whole, double part) {
      return static_cast<Nanos>(static_cast<double>(whole) * std::min(1.0, part));
    };
    const Nanos behind = part_of(time, all);
    const Nanos behind_own = part_of(behind, own / all);
    give(PartKind::kQueueOwn, wait.span, behind_own);
    give(PartKind::kQueueOthers, wait.span, behind - behind_own);
    give(PartKind::kSchedule, wait.span, time - behind);
  }

  double share(Nanos time) const { return total_ == 0 ? 0 : static_cast<double>(time) / static_cast<double>(total_); }

  // The sum of an attribute over the server's spans of a name.
  double sum(std::string_view name, std::string_view key) const {
    double total = 0;
    for (const Span& span : trace_.spans) {
      if (span.name == name && !span.of_program) total += number(span, key);
    }
    return total;
  }

  std::string phrase(PartKind kind, const Part& part) const {
    const double seconds = to_seconds(part.time);
    switch (kind) {
      case PartKind::kQueueOwn:
        return "waited for its turn behind other work of the same user";
      case PartKind::kQueueOthers:
        return "waited for its turn behind the work of other users";
      case PartKind::kSchedule:
        return "waited for its turn at the worker";
      case PartKind::kSequence:
        return "waited for earlier operations of its run";
      case PartKind::kPrefill:
        return with_tokens("read the prompt", sum("PREFILL", "tuft.prompt_tokens"), seconds);
      case PartKind::kDecode:
        return with_tokens("made tokens", sum("DECODE", "tuft.output_tokens"), seconds);
      case PartKind::kForward:
        return "computed forward passes";
      case PartKind::kBackward:
        return "computed passes with gradients";
      case PartKind::kOptimizer:
        return "took the optimizer step";
      case PartKind::kStore:
        return "waited for the store of the server's state";
      case PartKind::kNetwork:
        return "was between the server and its worker";
      case PartKind::kSave:
        return "wrote, published or read weights";
      case PartKind::kPaging:
        return "waited until its adapter was back in memory";
      case PartKind::kServer:
        return "was handled by the server";
      case PartKind::kOther:
        break;
    }
    return "was in " + trace_.spans[part.longest_span].name;
  }

  static std::string with_tokens(std::string text, double tokens, double seconds) {
    if (tokens < 1 || seconds <= 0) return text;
    return text + ": " + count(tokens) + " tokens, " + count(tokens / seconds) + " each second";
  }

  std::string summary(const std::vector<ExplainedPart>& parts) const {
    if (parts.empty()) return "It has no duration.";
    std::string text = "It took " + in_words(to_seconds(total_)) + ":";
    for (size_t i = 0; i < std::min(parts.size(), kNamedParts); ++i) {
      if (i > 0 && parts[i].share < kNamedShare) break;
      text += (i == 0 ? " " : ", ") + percent(parts[i].share) + " of it " + parts[i].text;
    }
    text += ".";
    const auto failed =
        std::find_if(trace_.spans.rbegin(), trace_.spans.rend(), [](const Span& one) { return one.failed; });
    if (failed != trace_.spans.rend()) text += " It failed in " + failed->name + ".";
    if (trace_.truncated) text += " The trace has more spans than are shown.";
    return text;
  }

  const Trace& trace_;
  const std::vector<PathPiece>& path_;
  const EngineWorkIn& work_;
  const std::unordered_map<std::string_view, Nanos> call_starts_;
  std::map<PartKind, Part> parts_;
  std::vector<Wait> waits_;
  Nanos total_ = 0;
};

}  // namespace

std::string_view part_kind_name(PartKind kind) {
  return kNames.at(static_cast<size_t>(kind));
}

std::string in_words(double seconds) {
  char text[48];
  if (seconds < 1e-3) {
    std::snprintf(text, sizeof(text), "%.0f us", seconds * 1e6);
  } else if (seconds < 1) {
    std::snprintf(text, sizeof(text), "%.3g ms", seconds * 1e3);
  } else if (seconds < 100) {
    std::snprintf(text, sizeof(text), "%.3g s", seconds);
  } else if (seconds < 7'200) {
    const long whole = std::lround(seconds);
    std::snprintf(text, sizeof(text), "%ld min %ld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof(text), "%.1f h", seconds / 3'600);
  }
  return text;
}

Explanation explain(const telemetry_store::Trace& trace, const std::vector<PathPiece>& path, const EngineWorkIn& work) {
  return Explainer(trace, path, work).run();
}

}  // namespace tuft::control
