#include "app/tuft/terminal/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "app/tuft/terminal/lists.h"
#include "app/tuft/terminal/table.h"
#include "app/tuft/terminal/units.h"

namespace tuft::terminal {
namespace {

constexpr std::array<std::string_view, kTopViews> kViewNames = {"Operations", "Users", "Sessions", "Runs"};
constexpr size_t kModelsShown = 6;
constexpr size_t kPageRows = 10;

// A value of a row: how it is shown, and how it is compared.
struct Value {
  std::string text;
  std::optional<double> number = std::nullopt;  // for numbers; texts are compared as such
  Style style = Style::kPlain;
};
struct Record {
  std::vector<Value> values;
};
struct Rows {
  std::vector<Column> columns;
  std::vector<Record> records;
};

Value text_value(std::string text) {
  if (text.empty()) text = "-";
  return {std::move(text)};
}
Value number_value(std::optional<double> number, std::string (*form)(std::optional<double>)) {
  return {form(number), number.value_or(-1)};
}

// What a series of several points comes to.
enum class Sum : uint8_t { kNewest, kMean };

std::optional<double> sum_of(const Json& points, Sum sum) {
  double total = 0, newest = 0;
  int count = 0;
  for (const Json& point : points) {
    if (!point.is_number()) continue;
    newest = point.get<double>();
    total += newest;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum == Sum::kNewest ? newest : total / count;
}

// Returns the value of the series with the key, or of all series added up if `key` is null.
std::optional<double> value_of(const Json& answer, const std::string* key, Sum sum = Sum::kNewest) {
  std::optional<double> total;
  for (const Json& series : list_of(answer, "series")) {
    const Json& name = field_of(series, "key");
    const bool is_group = name.is_string();
    const std::string group = is_group ? name.get<std::string>() : text_of(field_of(series, "labels"), "base_model");
    if (key != nullptr && group != *key) continue;
    const std::optional<double> value = sum_of(list_of(series, "points"), sum);
    if (value) total = total.value_or(0) + *value;
  }
  return total;
}

std::optional<double> per_second(std::optional<double> count_of_minute) {
  return count_of_minute ? std::optional(*count_of_minute / 60) : std::nullopt;
}

// Groups without errors have no series.
std::optional<double> errors_of(const TopData& data, const std::string* operation) {
  const std::optional<double> errors = value_of(data.errors, operation);
  return errors || data.errors.is_null() ? errors : std::optional(0.0);
}

std::string state_text(const Json& overview) {
  if (overview.is_null()) return "...";
  if (flag_of(overview, "ready")) return "ready";
  const std::string reason = text_of(overview, "reason");
  return reason.empty() ? "not ready" : "not ready: " + reason;
}

std::optional<double> since(const Json& overview, std::optional<double> time) {
  const std::optional<double> now = number_of(overview, "server_time");
  if (!now || !time) return std::nullopt;
  return std::max(0.0, *now - *time);
}

Line title_line(const TopData& data, const TopFrame& frame, const std::string& address) {
  const Json& overview = data.overview;
  const bool ready = flag_of(overview, "ready");
  Line line("tuft " + text_of(overview, "version"), Style::kBold);
  line.add("  " + address + "  ", Style::kDim);
  line.add(state_text(overview), ready ? Style::kGreen : Style::kYellow);
  const std::optional<double> up = since(overview, number_of(overview, "started"));
  if (up) line.add("  up " + duration_text(up));
  const std::string user = text_of(data.whoami, "user");
  const std::string right = user + (flag_of(data.whoami, "operator") ? " (operator)  " : "  ") +
                            clock_text(number_of(overview, "server_time")).substr(0, 8);
  const size_t room = columns_of(right);
  if (line.columns() + room + 1 <= frame.columns) line.to(frame.columns - room).add(right);
  return line;
}

Line counts_line(const TopData& data) {
  Line line;
  const auto add = [&](const char* name, const char* key) {
    line.add(std::string(name) + " ", Style::kDim);
    line.add(count_text(number_of(data.overview, key)) + "  ");
  };
  add("sessions", "sessions");
  add("runs", "runs");
  add("samplers", "samplers");
  add("unfinished operations", "pending");
  if (number_of(data.overview, "users_active")) add("active users", "users_active");
  return line;
}

Line rates_line(const TopData& data) {
  Line line("last minute  ", Style::kDim);
  const auto add = [&](std::optional<double> value, const char* what, Style style = Style::kPlain) {
    line.add(count_text(value), style).add(std::string(" ") + what, Style::kDim);
  };
  if (!data.trained.is_null() || !data.sampled.is_null()) {
    line.add("tokens/s ", Style::kDim);
    add(value_of(data.trained, nullptr, Sum::kMean), "trained, ");
    add(value_of(data.sampled, nullptr, Sum::kMean), "sampled  ");
  }
  add(per_second(value_of(data.counts, nullptr)), "operations/s  ");
  const std::optional<double> errors = errors_of(data, nullptr);
  add(errors, "errors", errors.value_or(0) > 0 ? Style::kRed : Style::kPlain);
  return line;
}

Line store_line(const TopData& data) {
  const Json& store = field_of(field_of(data.system, "telemetry"), "store");
  Line line("telemetry  ", Style::kDim);
  if (!store.is_object()) return line.add("not stored", Style::kYellow);
  const auto add = [&](const char* name, const std::string& text, Style style = Style::kPlain) {
    line.add(std::string(name) + " ", Style::kDim);
    line.add(text + "  ", style);
  };
  if (!flag_of(data.whoami, "operator")) {
    // How much it holds is for operators.
    add(flag_of(store, "on_disk") ? "kept on disk, at most" : "kept in memory, at most",
        bytes_text(number_of(store, "disk_bytes_max")));
    return line;
  }
  add("spans", count_text(number_of(store, "spans")));
  add("logs", count_text(number_of(store, "logs")));
  add("series", count_text(number_of(store, "series")));
  add("disk", bytes_text(number_of(store, "disk_bytes")) + " of " + bytes_text(number_of(store, "disk_bytes_max")));
  const double lost = number_of(store, "dropped_records").value_or(0);
  add("lost", count_text(lost), lost > 0 ? Style::kYellow : Style::kPlain);
  if (const std::string problem = text_of(store, "problem"); !problem.empty()) line.add(problem, Style::kYellow);
  return line;
}

std::string two_numbers(std::optional<double> a, std::optional<double> b) {
  return count_text(a) + " / " + count_text(b);
}

Lines model_lines(const TopData& data, size_t width) {
  static const std::vector<Column> columns = {
      {.title = "MODEL", .columns_max = 28},
      {.title = "STATE"},
      {.title = "LIFE", .right = true, .rank = 5},
      {.title = "QUEUED T / S", .right = true},
      {.title = "RUN / WAIT", .right = true, .rank = 2},
      {.title = "TRAIN TOK/S", .right = true, .rank = 4},
      {.title = "SAMPLE TOK/S", .right = true, .rank = 3},
      {.title = "OPTIMIZER STEP", .right = true, .rank = 6},
      {.title = "WHY WAITING", .columns_max = 60, .rank = 1},
  };
  std::vector<Row> rows;
  const Json& models = list_of(data.overview, "models");
  for (const Json& model : models) {
    const std::string name = text_of(model, "base_model"), state = text_of(model, "state");
    const Json& queue = field_of(model, "queue");
    rows.push_back({{name},
                    {state, style_of_state(state)},
                    {count_text(number_of(model, "incarnation"))},
                    {two_numbers(number_of(queue, "training"), number_of(queue, "sampling"))},
                    {two_numbers(value_of(data.running, &name), value_of(data.waiting, &name))},
                    {count_text(value_of(data.trained, &name, Sum::kMean))},
                    {count_text(value_of(data.sampled, &name, Sum::kMean))},
                    {duration_text(since(data.overview, number_of(model, "last_step")))},
                    {text_of(model, "why_waiting"), Style::kYellow}});
    if (rows.size() == kModelsShown) break;
  }
  Lines lines = table_lines(columns, rows, width);
  if (models.size() > kModelsShown) {
    lines.emplace_back("... " + std::to_string(models.size() - kModelsShown) + " more models", Style::kDim);
  }
  return lines;
}

Rows operation_rows(const TopData& data) {
  Rows rows;
  rows.columns = {{.title = "OPERATION"},
                  {.title = "PER SECOND", .right = true},
                  {.title = "P50", .right = true},
                  {.title = "P95", .right = true},
                  {.title = "ERRORS", .right = true}};
  for (const Json& series : list_of(data.counts, "series")) {
    const std::string name = text_of(series, "key");
    const std::optional<double> errors = errors_of(data, &name);
    Value failed = number_value(errors, count_text);
    if (errors.value_or(0) > 0) failed.style = Style::kRed;
    rows.records.push_back({{text_value(name), number_value(per_second(value_of(data.counts, &name)), count_text),
                             number_value(value_of(data.p50, &name), duration_text),
                             number_value(value_of(data.p95, &name), duration_text), failed}});
  }
  return rows;
}

Rows user_rows(const TopData& data) {
  Rows rows;
  rows.columns = {{.title = "USER"},
                  {.title = "SESSIONS", .right = true, .rank = 3},
                  {.title = "RUNS", .right = true},
                  {.title = "SAMPLERS", .right = true, .rank = 4},
                  {.title = "UNFINISHED", .right = true, .rank = 1},
                  {.title = "TOKENS IN 1H", .right = true},
                  {.title = "ENGINE", .right = true},
                  {.title = "CHECKPOINTS", .right = true, .rank = 2}};
  for (const Json& user : list_of(data.rows, "tenants")) {
    std::optional<double> tokens;
    for (const char* kind : {"train", "input", "output"}) {
      const std::optional<double> part = number_of(field_of(user, "tokens"), kind);
      if (part) tokens = tokens.value_or(0) + *part;
    }
    rows.records.push_back(
        {{text_value(text_of(user, "user")), number_value(number_of(user, "sessions"), count_text),
          number_value(number_of(user, "runs"), count_text), number_value(number_of(user, "samplers"), count_text),
          number_value(number_of(user, "pending"), count_text), number_value(tokens, count_text),
          number_value(number_of(user, "engine_share"), share_text),
          number_value(number_of(user, "checkpoint_bytes"), bytes_text)}});
  }
  return rows;
}

Rows session_rows(const TopData& data) {
  Rows rows;
  rows.columns = {{.title = "SESSION", .columns_max = 40}, {.title = "USER", .columns_max = 16, .rank = 1},
                  {.title = "AGE", .right = true},         {.title = "SEEN", .right = true, .rank = 3},
                  {.title = "RUNS", .right = true},        {.title = "SAMPLERS", .right = true, .rank = 4},
                  {.title = "BUSY", .right = true},        {.title = "AT ONCE", .right = true, .rank = 2}};
  for (const Json& session : list_of(data.rows, "sessions")) {
    rows.records.push_back({{text_value(text_of(session, "session")), text_value(text_of(session, "user")),
                             number_value(since(data.overview, number_of(session, "created")), duration_text),
                             number_value(since(data.overview, number_of(session, "last_heartbeat")), duration_text),
                             number_value(number_of(session, "runs"), count_text),
                             number_value(number_of(session, "samplers"), count_text),
                             number_value(number_of(session, "busy_share"), share_text),
                             number_value(number_of(session, "concurrency"), count_text)}});
  }
  return rows;
}

Rows run_rows(const TopData& data) {
  Rows rows;
  rows.columns = {{.title = "RUN", .columns_max = 44},
                  {.title = "USER", .columns_max = 16, .rank = 2},
                  {.title = "MODEL", .columns_max = 24, .rank = 4},
                  {.title = "STEPS", .right = true},
                  {.title = "LOSS", .right = true},
                  {.title = "TOK/S", .right = true, .rank = 1},
                  {.title = "SEEN", .right = true, .rank = 3}};
  for (const Json& run : list_of(data.rows, "runs")) {
    Value name = text_value(text_of(run, "run"));
    if (flag_of(run, "corrupted")) name.style = Style::kRed;
    rows.records.push_back(
        {{name, text_value(text_of(run, "user")), text_value(text_of(run, "base_model")),
          number_value(number_of(run, "steps"), count_text), number_value(number_of(run, "loss"), count_text),
          number_value(number_of(run, "tokens_per_second"), count_text),
          number_value(since(data.overview, number_of(run, "last_active")), duration_text)}});
  }
  return rows;
}

Rows rows_of(const TopData& data, TopView view) {
  switch (view) {
    case TopView::kOperations:
      return operation_rows(data);
    case TopView::kUsers:
      return user_rows(data);
    case TopView::kSessions:
      return session_rows(data);
    case TopView::kRuns:
      return run_rows(data);
  }
  return {};
}

// Texts ascend and numbers descend; rows that are equal keep the server's order.
void sort_rows(Rows& rows, const TopState& state) {
  const size_t column = std::min(state.sort_column, rows.columns.size() - 1);
  const auto before = [column](const Record& a, const Record& b) {
    const Value& x = a.values[column];
    const Value& y = b.values[column];
    if (x.number && y.number) return *x.number > *y.number;
    return x.text < y.text;
  };
  std::stable_sort(rows.records.begin(), rows.records.end(),
                   [&](const Record& a, const Record& b) { return state.reversed ? before(b, a) : before(a, b); });
  rows.columns[column].title += state.reversed ? "^" : "v";
}

Line view_line(const TopState& state) {
  Line line;
  for (size_t i = 0; i < kTopViews; ++i) {
    const bool chosen = i == static_cast<size_t>(state.view);
    line.add(" " + std::to_string(i + 1) + " " + std::string(kViewNames[i]) + " ",
             chosen ? Style::kReverse : Style::kDim);
  }
  return line;
}

std::string_view empty_text(TopView view) {
  switch (view) {
    case TopView::kOperations:
      return "no operation ended in the last minute";
    case TopView::kUsers:
      return "no user to show";
    case TopView::kSessions:
      return "no session";
    case TopView::kRuns:
      return "no training run";
  }
  return "";
}

void append_rows(Lines& lines, const TopData& data, const TopState& state, const TopFrame& frame, size_t room) {
  Rows rows = rows_of(data, state.view);
  if (rows.records.empty()) {
    const bool is_read = state.view == TopView::kOperations ? !data.counts.is_null() : data.view == state.view;
    lines.emplace_back(is_read ? empty_text(state.view) : "...", Style::kDim);
    return;
  }
  sort_rows(rows, state);
  const size_t shown = frame.is_live ? std::min(rows.records.size(), room - 1) : rows.records.size();
  const size_t first = std::min(state.scrolled, rows.records.size() - shown);
  std::vector<Row> cells;
  for (size_t i = first; i < first + shown; ++i) {
    Row row;
    for (Value& value : rows.records[i].values) row.push_back({std::move(value.text), value.style});
    cells.push_back(std::move(row));
  }
  for (Line& line : table_lines(rows.columns, cells, frame.columns)) lines.push_back(std::move(line));
}

Line help_line() {
  return Line("tab: view   arrows: sort and scroll   r: reverse   q: quit", Style::kDim);
}

}  // namespace

size_t rows_in(const TopData& data, TopView view) {
  return rows_of(data, view).records.size();
}

bool press(TopState& state, std::string_view key, size_t rows) {
  const size_t lowest = rows > 0 ? rows - 1 : 0;
  const auto turn = [&state](size_t steps) {
    state = TopState{.view = static_cast<TopView>((static_cast<size_t>(state.view) + steps) % kTopViews)};
  };
  if (key == "tab") {
    turn(1);
  } else if (key == "backtab") {
    turn(kTopViews - 1);
  } else if (key.size() == 1 && key[0] >= '1' && key[0] < static_cast<char>('1' + kTopViews)) {
    state = TopState{.view = static_cast<TopView>(key[0] - '1')};
  } else if (key == "right") {
    const size_t last = rows_of(TopData{}, state.view).columns.size() - 1;
    state.sort_column = std::min(state.sort_column + 1, last);
  } else if (key == "left") {
    state.sort_column -= state.sort_column > 0 ? 1 : 0;
  } else if (key == "r") {
    state.reversed = !state.reversed;
  } else if (key == "down") {
    state.scrolled = std::min(state.scrolled + 1, lowest);
  } else if (key == "up") {
    state.scrolled -= state.scrolled > 0 ? 1 : 0;
  } else if (key == "pagedown") {
    state.scrolled = std::min(state.scrolled + kPageRows, lowest);
  } else if (key == "pageup") {
    state.scrolled -= std::min(state.scrolled, kPageRows);
  } else if (key == "home") {
    state.scrolled = 0;
  } else {
    return false;
  }
  return true;
}

Lines top_lines(const TopData& data, const TopState& state, const TopFrame& frame, const std::string& address) {
  Lines lines = {title_line(data, frame, address), counts_line(data), rates_line(data), store_line(data)};
  lines.emplace_back(data.problem, Style::kRed);
  for (Line& line : model_lines(data, frame.columns)) lines.push_back(std::move(line));
  lines.emplace_back();
  lines.push_back(view_line(state));
  const size_t below = frame.is_live ? 1 : 0;
  const size_t used = lines.size() + below;
  append_rows(lines, data, state, frame, frame.rows > used + 2 ? frame.rows - used : 2);
  if (!frame.is_live) return lines;
  const size_t rows = std::max<size_t>(frame.rows, 2);
  lines.resize(rows - 1);
  lines.push_back(help_line());
  return lines;
}

}  // namespace tuft::terminal
