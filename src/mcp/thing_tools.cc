// The tools about runs, users and the server.
#include <string>
#include <utility>
#include <vector>

#include "mcp/tools.h"

namespace tuft::mcp {
namespace {

Json run_json(const control::RunRow& run) {
  return {{"run", run.run.str()},
          {"session", run.session.str()},
          {"user", run.user.str()},
          {"base_model", run.base_model},
          {"lora_rank", run.lora_rank},
          {"created", time_json(run.created)},
          {"last_active", time_json(run.last_active)},
          {"alive", run.alive},
          {"corrupted", run.corrupted},
          {"steps", run.steps},
          {"loss", number_json(run.loss)},
          {"grad_norm", number_json(run.grad_norm)},
          {"learning_rate", number_json(run.learning_rate)},
          {"tokens_per_second", number_json(run.tokens_per_second)}};
}

Json time_parts_json(const control::RunTime& time) {
  Json json = {{"seconds", time.seconds}, {"steps", time.steps}};
  for (size_t i = 0; i < control::kTimeKinds; ++i) {
    json[std::string(control::time_kind_name(static_cast<control::TimeKind>(i)))] = number_json(time.parts[i]);
  }
  return json;
}

Json step_json(const telemetry_store::RunStep& step) {
  return {{"step", step.step},
          {"time", time_json(step.time)},
          {"loss", number_json(step.loss)},
          {"grad_norm", number_json(step.grad_norm)},
          {"learning_rate", number_json(step.learning_rate)},
          {"tokens", step.tokens},
          {"pass_s", number_json(step.pass_seconds)},
          {"step_s", number_json(step.step_seconds)},
          {"wait_s", number_json(step.wait_seconds)},
          {"save_s", number_json(step.save_seconds)},
          {"idle_s", number_json(step.idle_seconds)},
          {"clipped", step.clipped}};
}

Json tenant_json(const control::TenantRow& tenant) {
  Json quotas = Json::array();
  for (const control::QuotaRow& quota : tenant.quotas) {
    quotas.push_back({{"limit", quota.limit}, {"used", quota.used}, {"max", quota.max > 0 ? Json(quota.max) : Json()}});
  }
  return {{"user", tenant.user.str()},
          {"sessions", tenant.sessions},
          {"runs", tenant.runs},
          {"samplers", tenant.samplers},
          {"unfinished_operations", tenant.pending},
          {"queued_bytes", tenant.queued_bytes},
          {"checkpoint_bytes", tenant.checkpoint_bytes},
          {"tokens_of_last_hour",
           {{"train", tenant.train_tokens}, {"input", tenant.input_tokens}, {"output", tenant.output_tokens}}},
          {"engine_share", number_json(tenant.engine_share)},
          {"quotas", std::move(quotas)}};
}

Json model_json(const control::ModelRow& model) {
  return {{"base_model", model.base_model},
          {"ready", model.ready},
          {"incarnation", model.incarnation},
          {"trains", model.training},
          {"samples", model.sampling},
          {"waiting_training", model.waiting_training},
          {"waiting_sampling", model.waiting_sampling},
          {"why_waiting", text_json(model.why_waiting)}};
}

Json store_json(const control::SystemView& system) {
  if (!system.store) return nullptr;
  const telemetry_store::StoreState& state = *system.store;
  // How much it holds is for operators.
  if (!system.is_whole) return {{"on_disk", state.on_disk}, {"disk_bytes_max", state.disk_bytes_max}};
  return {{"on_disk", state.on_disk},
          {"problem", text_json(state.problem)},
          {"disk_bytes", state.disk_bytes},
          {"disk_bytes_max", state.disk_bytes_max},
          {"spans", state.spans},
          {"logs", state.logs},
          {"series", state.series},
          {"oldest", time_json(state.oldest)},
          {"dropped_records", state.dropped_records}};
}

}  // namespace

Result<Json> list_runs(const Caller& caller, Arguments& arguments) {
  control::Part part;
  part.limit = static_cast<size_t>(arguments.integer("limit", 20, 1, 100));
  part.offset = static_cast<size_t>(arguments.integer("offset", 0, 0, 1'000'000));
  TUFT_TRY(arguments.finish());
  const control::PartOf<control::RunRow> found = caller.observer.runs(caller.user, part);
  Json runs = Json::array();
  for (const control::RunRow& run : found.rows) runs.push_back(run_json(run));
  return Json{{"runs", std::move(runs)}, {"next_offset", found.next ? Json(*found.next) : Json()}};
}

Result<Json> run_curve(const Caller& caller, Arguments& arguments) {
  const control::RunId run(arguments.text("run"));
  const int64_t after = arguments.integer("after", 0, 0, int64_t{1} << 40);
  const auto points = static_cast<size_t>(arguments.integer("points", 50, 1, 500));
  arguments.require("run", !run.str().empty());
  TUFT_TRY(arguments.finish());
  TUFT_ASSIGN(const control::RunDetails details, caller.observer.run(caller.user, run));
  TUFT_ASSIGN(const std::vector<telemetry_store::RunStep> found,
              caller.observer.steps(caller.user, run, after, points));
  Json steps = Json::array();
  for (const telemetry_store::RunStep& step : found) steps.push_back(step_json(step));
  return Json{{"run", run_json(details.run)},
              {"time", time_parts_json(details.time)},
              {"advice", details.advice},
              {"steps", std::move(steps)}};
}

Result<Json> list_tenants(const Caller& caller, Arguments& arguments) {
  TUFT_TRY(arguments.finish());
  Json users = Json::array();
  for (const control::TenantRow& tenant : caller.observer.tenants(caller.user)) users.push_back(tenant_json(tenant));
  return Json{{"users", std::move(users)}};
}

Result<Json> server_status(const Caller& caller, Arguments& arguments) {
  TUFT_TRY(arguments.finish());
  const control::Overview overview = caller.observer.overview(caller.user);
  Json models = Json::array();
  for (const control::ModelRow& model : overview.models) models.push_back(model_json(model));
  return Json{{"version", caller.server_version},
              {"time", time_json(overview.now)},
              {"started", time_json(overview.started)},
              {"ready", overview.ready},
              {"reason", text_json(overview.reason)},
              {"you", {{"user", caller.user.str()}, {"operator", caller.observer.is_operator(caller.user)}}},
              {"sessions", overview.sessions},
              {"runs", overview.runs},
              {"samplers", overview.samplers},
              {"unfinished_operations", overview.pending},
              {"models", std::move(models)},
              {"telemetry_store", store_json(caller.observer.system(caller.user))}};
}

}  // namespace tuft::mcp
