// Training runs: lists, curves and what to do about them.
#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "control/observe/advice.h"
#include "control/observe/observer_impl.h"
#include "control/observe/parts.h"
#include "control/types/errors.h"

namespace tuft::control {
namespace {

using telemetry_store::Filter;
using telemetry_store::RunStep;
using telemetry_store::SpanFunction;

constexpr size_t kHeadsOfPiece = 64;
constexpr size_t kCheckpointsMax = 1'000;
// The newest steps say how fast a run is, and where its time goes.
constexpr int64_t kStepsForSpeed = 16;
constexpr int64_t kStepsForTime = 200;
constexpr size_t kPointsToFindNewest = 32;
constexpr Nanos kOperationsWindow = 24 * 3600 * kSecond;
constexpr std::string_view kOperationSpan = "future_store.execute_operation";

double seconds_of(const RunStep& step) {
  return step.pass_seconds + step.step_seconds + step.wait_seconds + step.save_seconds + step.idle_seconds;
}

RunRow row_of(const RunSummary& run, const UserId& user) {
  RunRow row{.run = run.id,
             .session = run.session,
             .user = user,
             .base_model = run.base_model,
             .lora_rank = run.lora_rank,
             .optimizer = run.optimizer,
             .created = parse_iso_time(run.created_at).value_or(0),
             .last_active = run.last_request,
             .alive = true,
             .corrupted = run.broken};
  if (row.last_active == 0) row.last_active = row.created;
  return row;
}

// A run that is unloaded, as its checkpoints describe it.
RunRow row_of(const RunHead& head) {
  const Checkpoint& newest = head.describing();
  return {.run = head.run,
          .session = newest.session,
          .user = head.owner,
          .base_model = newest.base_model,
          .lora_rank = newest.lora_rank,
          .optimizer = newest.optimizer,
          .last_active = parse_iso_time(head.last_saved).value_or(0)};
}

}  // namespace

std::vector<RunRow> ObserverImpl::run_rows(const UserId& user, size_t count_max) const {
  std::vector<RunRow> rows;
  std::unordered_set<RunId> present;
  for (const RunSummary& run : parts_.runs.runs_of(user)) {
    present.insert(run.id);
    rows.push_back(row_of(run, user));
  }
  const CheckpointLists& lists = parts_.checkpoints.lists();
  CheckpointLists::RunCursor cursor;
  for (size_t unloaded = 0; unloaded < count_max;) {
    const std::vector<RunHead> heads = lists.runs_after(user, cursor, kHeadsOfPiece);
    if (heads.empty()) break;
    cursor.emplace(heads.back().last_saved, heads.back().run);
    for (const RunHead& head : heads) {
      if (present.contains(head.run)) continue;
      rows.push_back(row_of(head));
      ++unloaded;
    }
  }
  return rows;
}

void ObserverImpl::add_steps(const telemetry_store::Viewer& viewer, RunRow& row) const {
  if (parts_.store == nullptr) return;
  const std::vector<RunStep> some = parts_.store->steps(viewer, row.run.str(), 0, kPointsToFindNewest);
  if (some.empty()) return;
  const RunStep& newest = some.back();
  row.steps = newest.step;
  row.loss = newest.loss;
  row.grad_norm = newest.grad_norm;
  row.learning_rate = newest.learning_rate;
  double seconds = 0;
  int64_t tokens = 0;
  const int64_t after = std::max<int64_t>(0, newest.step - kStepsForSpeed);
  for (const RunStep& step : parts_.store->steps(viewer, row.run.str(), after, kStepsForSpeed)) {
    const double its = seconds_of(step);
    if (!std::isfinite(its)) continue;
    seconds += its;
    tokens += step.tokens;
  }
  if (seconds > 0) row.tokens_per_second = static_cast<double>(tokens) / seconds;
}

PartOf<RunRow> ObserverImpl::runs(const UserId& user, const Part& part) const {
  const size_t needed = part.offset + part.limit + 1;
  std::vector<RunRow> rows;
  for (const UserId& each : seen_by(user)) {
    std::vector<RunRow> own = run_rows(each, needed);
    rows.insert(rows.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
  }
  PartOf<RunRow> found =
      newest_part(std::move(rows), part, [](const RunRow& row) { return std::pair(row.last_active, row.run.str()); });
  for (RunRow& row : found.rows) add_steps(viewer(user), row);
  return found;
}

std::optional<RunRow> ObserverImpl::find_run(const UserId& user, const RunId& run) const {
  for (const UserId& each : seen_by(user)) {
    if (const auto live = parts_.runs.run_of(each, run)) return row_of(*live, each);
  }
  const auto head = parts_.checkpoints.lists().head(run);
  if (!head || (head->owner != user && !is_operator(user))) return std::nullopt;
  return row_of(*head);
}

Result<std::vector<RunStep>> ObserverImpl::steps(const UserId& user, const RunId& run, int64_t after,
                                                 size_t points) const {
  TUFT_TRY(check_store());
  // A run that is gone may still have its curve.
  std::vector<RunStep> steps = parts_.store->steps(viewer(user), run.str(), after, points);
  if (steps.empty() && !find_run(user, run)) return unknown_run();
  return steps;
}

std::vector<OperationRow> ObserverImpl::operations_of(const UserId& user, const RunId& run) const {
  std::vector<OperationRow> rows;
  if (parts_.store == nullptr) return rows;
  const Nanos now = parts_.clock.wall();
  const Filter filter{
      .time = {now - kOperationsWindow, now}, .run = run.str(), .name = std::string(kOperationSpan), .of_server = true};
  const auto row_for = [&rows](const std::string& operation) -> OperationRow& {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const OperationRow& row) { return row.operation == operation; });
    return found != rows.end() ? *found : rows.emplace_back(OperationRow{.operation = operation});
  };
  const auto each = [&](SpanFunction function, auto set) {
    const auto series = parts_.store->span_series(viewer(user), filter, function, "operation", kOperationsWindow);
    if (!series.ok()) return;
    for (const auto& [operation, points] : series->series) {
      for (const double point : points) {
        if (std::isfinite(point)) set(row_for(operation), point);
      }
    }
  };
  each(SpanFunction::kCount, [](OperationRow& row, double value) { row.count += std::llround(value); });
  each(SpanFunction::kErrors, [](OperationRow& row, double value) { row.failed += std::llround(value); });
  each(SpanFunction::kP50, [](OperationRow& row, double value) { row.p50 = value; });
  each(SpanFunction::kP95, [](OperationRow& row, double value) { row.p95 = value; });
  return rows;
}

Result<RunDetails> ObserverImpl::run(const UserId& user, const RunId& run) const {
  auto row = find_run(user, run);
  if (!row) return unknown_run();
  RunDetails details{.run = *std::move(row)};
  add_steps(viewer(user), details.run);
  Page<CheckpointPtr> checkpoints =
      parts_.checkpoints.lists().of_run(run, {.offset = 0, .limit = static_cast<int64_t>(kCheckpointsMax)});
  details.checkpoints = std::move(checkpoints.items);
  std::reverse(details.checkpoints.begin(), details.checkpoints.end());
  if (parts_.store != nullptr && details.run.steps > 0) {
    const int64_t after = std::max<int64_t>(0, details.run.steps - kStepsForTime);
    details.time = time_of(parts_.store->steps(viewer(user), run.str(), after, kStepsForTime));
  }
  const Result<ModelPtr> model = parts_.backends.find(details.run.base_model);
  details.advice = advice_for(details.time, model.ok() ? (*model)->config().train_batch_tokens : 0);
  details.operations = operations_of(user, run);
  return details;
}

}  // namespace tuft::control
