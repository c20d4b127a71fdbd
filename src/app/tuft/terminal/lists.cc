#include "app/tuft/terminal/lists.h"

#include <string>
#include <utility>
#include <vector>

#include "app/tuft/terminal/table.h"
#include "app/tuft/terminal/units.h"

namespace tuft::terminal {
namespace {

std::string first_of(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "-";
}

// What a trace is about: the span that met the filter, or the root, without what all routes have in common.
std::string subject(const Json& trace) {
  const std::string root = text_of(field_of(trace, "root"), "name");
  std::string name = first_of({text_of(field_of(trace, "match"), "name"), root});
  for (const std::string_view common : {"POST /api/v1/", "GET /api/v1/"}) {
    if (name.starts_with(common)) return name.substr(common.size());
  }
  return name;
}

Row trace_row(const Json& trace) {
  const double failed = number_of(trace, "failed_spans").value_or(0);
  const Style style = failed > 0 ? Style::kRed : Style::kPlain;
  return {{text_of(trace, "trace_id"), Style::kCyan},
          {clock_text(number_of(trace, "start"))},
          {duration_text(number_of(trace, "duration"))},
          {failed > 0 ? "! " + subject(trace) : subject(trace), style},
          {first_of({text_of(trace, "operation")})},
          {count_text(number_of(trace, "spans"))},
          {failed > 0 ? count_text(failed) : "", style},
          {first_of({text_of(trace, "user")})},
          {first_of({text_of(trace, "run"), text_of(trace, "sampler"), text_of(trace, "session")})},
          {first_of({text_of(trace, "base_model")})}};
}

// "k8s.pod.name=tuft-0 k8s.node.name=n1"
std::string launcher_text(const Json& worker) {
  const Json& launcher = field_of(worker, "launcher");
  std::string text;
  if (!launcher.is_object()) return "-";
  for (const auto& [key, value] : launcher.items()) {
    if (value.is_string()) text += (text.empty() ? "" : " ") + key + "=" + value.get<std::string>();
  }
  return first_of({text});
}

Row worker_row(const Json& worker) {
  const std::string state = text_of(worker, "state");
  const bool joined = flag_of(worker, "joined");
  return {{text_of(worker, "base_model")},
          {state, style_of_state(state)},
          {day_text(number_of(worker, "since"))},
          {first_of({text_of(worker, "host")})},
          {number_of(worker, "pid").value_or(0) > 0 ? text_of(worker, "pid") : "-"},
          {joined ? first_of({text_of(worker, "address"), "joined"}) : "started here"},
          {joined ? launcher_text(worker) : "-"},
          {first_of({text_of(worker, "reason")})}};
}

}  // namespace

Style style_of_state(const std::string& state) {
  if (state == "ready") return Style::kGreen;
  if (state == "standby") return Style::kPlain;
  return state == "dead" ? Style::kRed : Style::kYellow;
}

Lines worker_list_lines(const Json& workers, size_t width) {
  static const std::vector<Column> columns = {
      {.title = "MODEL", .columns_max = 40},
      {.title = "STATE"},
      {.title = "SINCE", .rank = 3},
      {.title = "HOST", .columns_max = 40, .rank = 1},
      {.title = "PID", .right = true, .rank = 4},
      {.title = "JOINED FROM", .rank = 5},
      {.title = "PLACED BY", .columns_max = 60, .rank = 6},
      {.title = "REASON", .columns_max = 60, .rank = 2},
  };
  std::vector<Row> rows;
  for (const Json& worker : workers) rows.push_back(worker_row(worker));
  return table_lines(columns, rows, width);
}

Lines trace_list_lines(const Json& traces, size_t width) {
  static const std::vector<Column> columns = {
      {.title = "TRACE"},
      {.title = "START"},
      {.title = "DURATION", .right = true},
      {.title = "WHAT", .columns_max = 40, .rank = 1},
      {.title = "OPERATION", .columns_max = 26, .rank = 2},
      {.title = "SPANS", .right = true, .rank = 4},
      {.title = "FAILED", .right = true, .rank = 3},
      {.title = "USER", .columns_max = 20, .rank = 5},
      {.title = "RUN, SAMPLER OR SESSION", .columns_max = 60, .rank = 6},
      {.title = "MODEL", .columns_max = 30, .rank = 7},
  };
  std::vector<Row> rows;
  for (const Json& trace : traces) rows.push_back(trace_row(trace));
  return table_lines(columns, rows, width);
}

Style style_of_level(const std::string& level) {
  if (level == "error") return Style::kRed;
  if (level == "warning") return Style::kYellow;
  return level == "debug" ? Style::kDim : Style::kPlain;
}

Line log_line(const Json& record) {
  const std::string level = text_of(record, "level");
  const std::string worker = text_of(record, "worker");
  Line line(clock_text(number_of(record, "time")), Style::kDim);
  line.add(" " + left_aligned(level, 7), style_of_level(level));
  line.add(" " + first_of({text_of(record, "service")}) + (worker.empty() ? "" : "[" + worker + "]"), Style::kDim);
  line.add(" " + first_of({text_of(record, "event")}), Style::kBold);
  if (const std::string body = text_of(record, "body"); !body.empty()) line.add("  " + body, style_of_level(level));
  const Json& attributes = field_of(record, "attributes");
  if (attributes.is_object()) {
    for (const auto& [key, value] : attributes.items()) {
      if (key.starts_with("code.")) continue;  // the place in the program, which --json has
      line.add("  " + key + "=" + (value.is_string() ? value.get<std::string>() : safe_json(value)), Style::kDim);
    }
  }
  if (const std::string trace = text_of(record, "trace_id"); !trace.empty()) line.add("  trace=" + trace, Style::kCyan);
  return line;
}

}  // namespace tuft::terminal
