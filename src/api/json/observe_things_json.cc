// Runs, sessions, samplers, tenants and the server itself.
#include <cctype>
#include <charconv>
#include <cmath>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

#include "api/json/observe_json.h"
#include "api/json/observe_text.h"
#include "control/types/checkpoint.h"
#include "control/types/checkpoint_path.h"

namespace tuft::api {
namespace {

// Series of a worker beyond these are left out.
constexpr size_t kWorkerSeriesMax = 2'000;

void write_next(JsonWriter& json, const std::optional<size_t>& next) {
  write_or_null(json, "next", next ? std::to_string(*next) : std::string());
}

void write_run_fields(JsonWriter& json, const control::RunRow& run) {
  json.key("run").string(run.run.str()).key("session").string(run.session.str()).key("user").string(run.user.str());
  json.key("base_model").string(run.base_model).key("lora_rank").integer(run.lora_rank);
  json.key("optimizer").string(control::optimizer_name(run.optimizer));
  write_time(json, "created", run.created);
  write_time(json, "last_active", run.last_active);
  json.key("alive").boolean(run.alive).key("corrupted").boolean(run.corrupted).key("steps").integer(run.steps);
  json.key("loss").number(run.loss).key("grad_norm").number(run.grad_norm);
  json.key("learning_rate").number(run.learning_rate).key("tokens_per_second").number(run.tokens_per_second);
}

void write_checkpoint_row(JsonWriter& json, const control::Checkpoint& checkpoint) {
  json.begin_object().key("checkpoint_id");
  json.string(std::string(control::checkpoint_folder(checkpoint.path.kind)) + "/" + checkpoint.path.name);
  json.key("kind").string(control::checkpoint_type_name(checkpoint.path.kind));
  json.key("tinker_path").string(checkpoint.path.str()).key("size_bytes").integer(checkpoint.size_bytes);
  write_time(json, "created", control::parse_iso_time(checkpoint.created_at).value_or(0));
  write_time(json, "expires", checkpoint.expires_at.value_or(0));
  json.key("public").boolean(checkpoint.is_public).key("owner").string(checkpoint.owner.str()).end_object();
}

void write_host(JsonWriter& json) {
  utsname system{};
  ::uname(&system);
  json.key("host").begin_object().key("name").string(utf8_text(system.nodename));
  json.key("kernel").string(std::string(system.sysname) + " " + system.release);
  json.key("machine").string(system.machine);
  json.key("cores").integer(static_cast<int64_t>(std::thread::hardware_concurrency()));
  json.key("memory_bytes").integer(static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE));
  json.end_object();
}

void write_build(JsonWriter& json) {
#ifdef NDEBUG
  constexpr std::string_view kType = "release";
#else
  constexpr std::string_view kType = "debug";
#endif
  json.key("build").begin_object().key("compiler").string(__VERSION__).key("type").string(kType).end_object();
}

// Writes the series of the page that have this label. Buckets of histograms are left out.
void write_worker_metrics(JsonWriter& json, std::string_view page, const std::string& worker) {
  const std::string label = "worker=\"" + worker + "\"";
  json.key("metrics").begin_object();
  size_t count = 0;
  while (!page.empty() && count < kWorkerSeriesMax) {
    const size_t end = std::min(page.find('\n'), page.size());
    const std::string_view line = page.substr(0, end);
    page.remove_prefix(std::min(end + 1, page.size()));
    const size_t found = line.find(label);
    if (line.starts_with('#') || found == line.npos || line.find("_bucket{") != line.npos) continue;
    const size_t close = line.find("} ", found);
    if (close == line.npos) continue;
    double value = 0;
    const std::string_view number = line.substr(close + 2, line.find(' ', close + 2) - close - 2);
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc()) continue;
    // The label itself would be the same everywhere.
    std::string name(line.substr(0, close + 1));
    name.erase(found, label.size() + (name[found + label.size()] == ',' ? 1 : 0));
    if (const size_t comma = name.find(",}"); comma != name.npos) name.erase(comma, 1);
    if (name.ends_with("{}")) name.resize(name.size() - 2);
    json.key(utf8_text(name)).number(value);
    ++count;
  }
  json.end_object();
}

void write_store(JsonWriter& json, const std::optional<telemetry_store::StoreState>& store) {
  json.key("store");
  if (!store) {
    json.null();
    return;
  }
  json.begin_object().key("on_disk").boolean(store->on_disk);
  write_or_null(json, "problem", store->problem);
  json.key("disk_bytes").integer(static_cast<int64_t>(store->disk_bytes));
  json.key("disk_bytes_max").integer(static_cast<int64_t>(store->disk_bytes_max));
  json.key("memory_bytes").integer(static_cast<int64_t>(store->memory_bytes));
  json.key("spans").integer(static_cast<int64_t>(store->spans)).key("logs").integer(static_cast<int64_t>(store->logs));
  json.key("series").integer(static_cast<int64_t>(store->series));
  json.key("steps").integer(static_cast<int64_t>(store->steps));
  write_time(json, "oldest", store->oldest);
  json.key("dropped_records").integer(static_cast<int64_t>(store->dropped_records)).end_object();
}

}  // namespace

std::string steps_json(const std::vector<telemetry_store::RunStep>& steps) {
  JsonWriter json;
  json.begin_object().key("steps").begin_array();
  for (const telemetry_store::RunStep& step : steps) {
    const double seconds =
        step.pass_seconds + step.step_seconds + step.wait_seconds + step.save_seconds + step.idle_seconds;
    json.begin_object().key("step").integer(step.step);
    write_time(json, "time", step.time);
    json.key("loss").number(step.loss).key("grad_norm").number(step.grad_norm);
    json.key("learning_rate").number(step.learning_rate).key("tokens").integer(step.tokens);
    json.key("seconds").number(seconds).key("pass_seconds").number(step.pass_seconds);
    json.key("step_seconds").number(step.step_seconds).key("wait_seconds").number(step.wait_seconds);
    json.key("save_seconds").number(step.save_seconds).key("idle_seconds").number(step.idle_seconds);
    json.key("clipped").boolean(step.clipped).end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string overview_json(const control::Overview& overview, std::string_view version) {
  JsonWriter json;
  json.begin_object();
  write_time(json, "server_time", overview.now);
  json.key("version").string(version);
  write_time(json, "started", overview.started);
  json.key("ready").boolean(overview.ready);
  write_or_null(json, "reason", overview.reason);
  json.key("models").begin_array();
  for (const control::ModelRow& model : overview.models) {
    json.begin_object().key("base_model").string(model.base_model);
    json.key("state").string(model.state);
    json.key("incarnation").integer(static_cast<int64_t>(model.incarnation));
    json.key("training").boolean(model.training).key("sampling").boolean(model.sampling);
    json.key("queue").begin_object().key("training").integer(model.waiting_training);
    json.key("sampling").integer(model.waiting_sampling).end_object();
    write_time(json, "last_step", model.last_step);
    write_or_null(json, "why_waiting", model.why_waiting);
    json.end_object();
  }
  json.end_array().key("sessions").integer(overview.sessions).key("runs").integer(overview.runs);
  json.key("samplers").integer(overview.samplers).key("pending").integer(overview.pending).key("users_active");
  if (overview.users_active) {
    json.integer(*overview.users_active);
  } else {
    json.null();
  }
  json.end_object();
  return std::move(json).take();
}

std::string runs_json(const control::PartOf<control::RunRow>& runs) {
  JsonWriter json;
  json.begin_object().key("runs").begin_array();
  for (const control::RunRow& run : runs.rows) {
    json.begin_object();
    write_run_fields(json, run);
    json.end_object();
  }
  json.end_array();
  write_next(json, runs.next);
  json.end_object();
  return std::move(json).take();
}

std::string run_json(const control::RunDetails& details) {
  JsonWriter json;
  json.begin_object();
  write_run_fields(json, details.run);
  json.key("checkpoints").begin_array();
  for (const control::CheckpointPtr& checkpoint : details.checkpoints) write_checkpoint_row(json, *checkpoint);
  json.end_array().key("time").begin_object().key("window_seconds").number(details.time.seconds);
  json.key("parts").begin_array();
  for (size_t i = 0; i < control::kTimeKinds; ++i) {
    json.begin_object().key("kind").string(control::time_kind_name(static_cast<control::TimeKind>(i)));
    json.key("seconds").number(details.time.parts[i]);
    json.key("share").number(details.time.seconds > 0 ? details.time.parts[i] / details.time.seconds : 0).end_object();
  }
  json.end_array().end_object().key("advice").begin_array();
  for (const std::string& sentence : details.advice) json.string(sentence);
  json.end_array().key("operations").begin_array();
  for (const control::OperationRow& row : details.operations) {
    json.begin_object();
    write_text(json, "operation", row.operation);
    json.key("count").integer(row.count);
    json.key("p50")
        .number(row.p50 * 1e6)
        .key("p95")
        .number(row.p95 * 1e6)
        .key("failed")
        .integer(row.failed)
        .end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string samplers_json(const control::PartOf<control::SamplerRow>& samplers) {
  JsonWriter json;
  json.begin_object().key("samplers").begin_array();
  for (const control::SamplerRow& row : samplers.rows) {
    json.begin_object().key("sampler").string(row.sampler.str()).key("session").string(row.session.str());
    json.key("user").string(row.user.str()).key("base_model").string(row.base_model);
    write_or_null(json, "model_path", row.model_path.value_or(""));
    write_time(json, "created", row.created);
    write_time(json, "last_active", row.last_active);
    json.key("requests").integer(row.requests);
    write_or_null(json, "follows_run", row.follows_run ? row.follows_run->str() : "");
    json.end_object();
  }
  json.end_array();
  write_next(json, samplers.next);
  json.end_object();
  return std::move(json).take();
}

std::string sessions_json(const control::PartOf<control::SessionRow>& sessions) {
  JsonWriter json;
  json.begin_object().key("sessions").begin_array();
  for (const control::SessionRow& row : sessions.rows) {
    json.begin_object().key("session").string(row.session.str()).key("user").string(row.user.str());
    write_time(json, "created", row.created);
    write_time(json, "last_heartbeat", row.last_heartbeat);
    write_or_null(json, "display_name", row.display_name);
    write_or_null(json, "project", row.project);
    write_or_null(json, "sdk_version", row.sdk_version);
    json.key("alive").boolean(row.alive).key("runs").integer(row.runs).key("samplers").integer(row.samplers);
    json.key("busy_share").number(row.busy_share).key("concurrency").number(row.concurrency).end_object();
  }
  json.end_array();
  write_next(json, sessions.next);
  json.end_object();
  return std::move(json).take();
}

std::string tenants_json(const std::vector<control::TenantRow>& tenants) {
  JsonWriter json;
  json.begin_object().key("tenants").begin_array();
  for (const control::TenantRow& row : tenants) {
    json.begin_object().key("user").string(row.user.str()).key("sessions").integer(row.sessions);
    json.key("runs").integer(row.runs).key("samplers").integer(row.samplers).key("pending").integer(row.pending);
    json.key("queued_bytes").integer(row.queued_bytes).key("checkpoint_bytes").integer(row.checkpoint_bytes);
    json.key("tokens").begin_object().key("train").integer(row.train_tokens);
    json.key("input").integer(row.input_tokens).key("output").integer(row.output_tokens).end_object();
    json.key("engine_share").number(row.engine_share).key("quotas").begin_array();
    for (const control::QuotaRow& quota : row.quotas) {
      json.begin_object().key("limit").string(quota.limit).key("used").integer(quota.used).key("max");
      if (quota.max == 0) {
        json.null();
      } else {
        json.integer(quota.max);
      }
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string workers_json(const std::vector<control::WorkerInstance>& workers) {
  JsonWriter json;
  json.begin_object().key("workers").begin_array();
  for (const auto& [base_model, state, row] : workers) {
    json.begin_object().key("base_model").string(base_model).key("state").string(state);
    write_or_null(json, "reason", row.reason);
    json.key("joined").boolean(row.joined);
    write_or_null(json, "worker_id", row.worker_id);
    write_or_null(json, "host", row.host);
    write_or_null(json, "address", row.address);
    write_or_null(json, "version", row.version);
    json.key("pid").integer(row.pid).key("memory_bytes").integer(row.memory_bytes).key("cores").integer(row.cores);
    json.key("launcher").begin_object();
    for (const auto& [key, value] : row.launcher) json.key(key).string(value);
    json.end_object();
    write_time(json, "since", row.since);
    write_time(json, "changed", row.changed);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string system_json(const control::SystemView& system, std::string_view version, std::string_view metrics_page) {
  JsonWriter json;
  json.begin_object().key("version").string(version);
  if (system.is_whole) {
    write_build(json);
    write_time(json, "started", system.started);
    write_host(json);
    json.key("config").string(system.config).key("workers").begin_array();
    for (const control::WorkerRow& worker : system.workers) {
      json.begin_object().key("base_model").string(worker.base_model);
      json.key("state").string(worker.state);
      json.key("incarnation").integer(static_cast<int64_t>(worker.incarnation)).key("pid").null();
      json.key("threads").integer(worker.threads).key("device").string(worker.device);
      write_worker_metrics(json, metrics_page, worker.base_model);
      json.end_object();
    }
    json.end_array();
  } else {
    json.key("build").null().key("started").null().key("host").null().key("config").null().key("workers").null();
  }
  json.key("telemetry").begin_object();
  write_store(json, system.store);
  json.key("export");
  if (system.is_whole) {
    json.begin_object().key("enabled").boolean(system.exports).key("signals").begin_array();
    for (const std::string_view signal : system.signals) json.string(signal);
    json.end_array().end_object();
  } else {
    json.null();
  }
  json.end_object().key("limits").begin_object();
  for (const auto& [key, value] : system.limits) json.key(key).integer(value);
  json.end_object().end_object();
  return std::move(json).take();
}

}  // namespace tuft::api
