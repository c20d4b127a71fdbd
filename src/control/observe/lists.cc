// Sessions, sampling sessions and tenants.
#include <algorithm>
#include <iterator>
#include <utility>

#include "config/shown.h"
#include "control/accounts/quota.h"
#include "control/observe/observer_impl.h"
#include "control/observe/parts.h"

namespace tuft::control {

PartOf<SamplerRow> ObserverImpl::samplers(const UserId& user, const Part& part) const {
  std::vector<SamplerRow> rows;
  for (const UserId& each : seen_by(user)) {
    for (SamplerTable::Summary& sampler : parts_.samplers.summaries_of(each)) {
      rows.push_back({.sampler = std::move(sampler.id),
                      .session = std::move(sampler.session),
                      .user = each,
                      .base_model = std::move(sampler.base_model),
                      .model_path = std::move(sampler.model_path),
                      .created = parse_iso_time(sampler.created_at).value_or(0),
                      .last_active = wall_of(sampler.last_used),
                      .requests = static_cast<int64_t>(sampler.uses),
                      .follows_run = std::move(sampler.follows)});
    }
  }
  return newest_part(std::move(rows), part,
                     [](const SamplerRow& row) { return std::pair(row.last_active, row.sampler.str()); });
}

SessionRow ObserverImpl::session_row(const UserId& user, const SessionFound& found) const {
  SessionRow row{.session = found.id,
                 .user = user,
                 .created = parse_iso_time(found.created_at).value_or(0),
                 .display_name = found.display_name,
                 .project = found.project_id};
  const auto life = parts_.sessions.life_of(user, found.id);
  row.alive = life.has_value();
  if (!life) return row;
  row.last_heartbeat = wall_of(life->heard);
  row.sdk_version = life->sdk_version;
  row.runs = static_cast<int64_t>(parts_.runs.of_session(user, found.id).size());
  row.samplers = static_cast<int64_t>(parts_.samplers.of_session(user, found.id).size());
  const SessionActivity activity = parts_.futures.activity_of(found.id);
  // Before the start of this server nothing is known.
  const Nanos age = parts_.clock.wall() - std::max(row.created, started_wall_);
  if (age > 0) row.busy_share = std::min(1.0, to_seconds(activity.busy) / to_seconds(age));
  if (activity.busy > 0) row.concurrency = activity.operations / to_seconds(activity.busy);
  return row;
}

PartOf<SessionRow> ObserverImpl::sessions(const UserId& user, const Part& part) const {
  const size_t needed = part.offset + part.limit + 1;
  std::vector<std::pair<UserId, SessionFound>> all;
  for (const UserId& each : seen_by(user)) {
    SessionQuery query{.limit = needed};
    for (size_t own = 0; own < needed;) {
      SessionsFound found = parts_.sessions.search(each, query);
      own += found.sessions.size();
      if (!found.sessions.empty()) query.after.emplace(found.sessions.back().created_at, found.sessions.back().id);
      for (SessionFound& session : found.sessions) {
        session.user_metadata.clear();
        all.emplace_back(each, std::move(session));
      }
      if (!found.has_more) break;
    }
  }
  PartOf<std::pair<UserId, SessionFound>> found = newest_part(
      std::move(all), part, [](const auto& row) { return std::pair(row.second.created_at, row.second.id.str()); });
  PartOf<SessionRow> rows{{}, found.next};
  for (const auto& [owner, session] : found.rows) rows.rows.push_back(session_row(owner, session));
  return rows;
}

std::vector<QuotaRow> ObserverImpl::quotas_of(const UserId& user, const OperationBudget::Use& use) const {
  const config::Limits& limits = parts_.config.limits;
  const Sessions::Use sessions = parts_.sessions.use_of(user);
  const CheckpointUse checkpoints = parts_.checkpoints.used_by(user);
  const CustomLosses::Use losses = parts_.custom_losses.use_of(user);
  const auto runs = static_cast<int64_t>(parts_.runs.runs_of(user).size());
  return {{quota_limit(Quota::kSessions), sessions.count, limits.sessions_per_user_max},
          {quota_limit(Quota::kSessionBytes), sessions.bytes, limits.session_bytes_per_user_max},
          {quota_limit(Quota::kRuns), runs, limits.runs_per_user_max},
          {quota_limit(Quota::kSamplers), parts_.samplers.count_of(user), limits.samplers_per_user_max},
          {quota_limit(Quota::kFutures), use.pending, limits.futures_per_user_max},
          {quota_limit(Quota::kSamplesInFlight), use.samples, limits.samples_in_flight_per_user_max},
          {quota_limit(Quota::kQueuedBytes), use.bytes, limits.queued_bytes_per_user_max},
          {quota_limit(Quota::kCheckpointBytes), checkpoints.bytes, limits.checkpoint_bytes_per_user_max},
          {quota_limit(Quota::kCheckpoints), checkpoints.count, limits.checkpoints_per_user_max},
          {quota_limit(Quota::kArchives), parts_.checkpoint_actions.open_archives(user), limits.archives_per_user_max},
          {quota_limit(Quota::kCustomLosses), losses.count, limits.custom_losses_per_user_max},
          {quota_limit(Quota::kCustomLossBytes), losses.bytes, limits.custom_loss_bytes_per_user_max}};
}

TenantRow ObserverImpl::tenant_row(const UserId& user) const {
  const OperationBudget::Use use = parts_.budget.use_of(user);
  TenantRow row{.user = user,
                .sessions = parts_.sessions.use_of(user).count,
                .runs = static_cast<int64_t>(parts_.runs.runs_of(user).size()),
                .samplers = parts_.samplers.count_of(user),
                .pending = parts_.futures.unfinished_of(user).all,
                .queued_bytes = use.bytes,
                .checkpoint_bytes = parts_.checkpoints.used_by(user).bytes};
  row.quotas = quotas_of(user, use);
  // Counts are by the hour: of the hour before, as much counts as is within the last 60 minutes.
  const Nanos now = parts_.clock.wall();
  const Nanos hour = now - now % kHour;
  const double of_before = 1 - to_seconds(now - hour) / to_seconds(kHour);
  double train = 0, input = 0, output = 0;
  for (const UsageEvent& event : parts_.usage.events(user, hour - kHour, hour + kHour)) {
    const double tokens = static_cast<double>(event.count) * (event.bucket_start < hour ? of_before : 1);
    if (event.kind == UsageKind::kTraining) train += tokens;
    if (event.kind == UsageKind::kSamplingPrefill || event.kind == UsageKind::kSamplingPrefillCached) input += tokens;
    if (event.kind == UsageKind::kSamplingOutput) output += tokens;
  }
  row.train_tokens = static_cast<int64_t>(train);
  row.input_tokens = static_cast<int64_t>(input);
  row.output_tokens = static_cast<int64_t>(output);
  return row;
}

std::vector<WorkerInstance> ObserverImpl::workers(const UserId& user) const {
  const bool is_whole = is_operator(user);
  std::vector<WorkerInstance> found;
  for (const ModelPtr& model : parts_.backends.models()) {
    // Each worker of a base model knows all of them.
    for (actor::WorkerRow& row : model->workers().front()->actor().workers()) {
      if (!is_whole) {
        row = {
            .number = row.number, .state = row.state, .joined = row.joined, .since = row.since, .changed = row.changed};
      }
      found.push_back({model->name(), actor::worker_state_name(row.state), std::move(row)});
    }
  }
  return found;
}

// A share is shown to operators only: users could compute from theirs how much others do.
std::vector<TenantRow> ObserverImpl::tenants(const UserId& user) const {
  std::vector<TenantRow> rows;
  int64_t all = 0;
  const auto tokens = [](const TenantRow& row) { return row.train_tokens + row.input_tokens + row.output_tokens; };
  for (const UserId& each : seen_by(user)) {
    rows.push_back(tenant_row(each));
    all += tokens(rows.back());
  }
  if (!is_operator(user) || all == 0) return rows;
  for (TenantRow& row : rows) row.engine_share = static_cast<double>(tokens(row)) / static_cast<double>(all);
  return rows;
}

SystemView ObserverImpl::system(const UserId& user) const {
  SystemView view{.started = started_wall_, .is_whole = is_operator(user)};
  if (parts_.store != nullptr) view.store = parts_.store->state();
  view.limits = config::limit_values(parts_.config.limits);
  if (!view.is_whole) {
    // How much the store holds says how much others do.
    if (view.store) {
      telemetry_store::StoreState own;
      own.on_disk = view.store->on_disk;
      own.disk_bytes_max = view.store->disk_bytes_max;
      view.store = own;
    }
    return view;
  }
  view.config = config::shown_config(parts_.config);
  for (const auto& backend : parts_.backends.all()) {
    view.workers.push_back({.base_model = backend->label(),
                            .state = actor::worker_state_name(backend->actor().state()),
                            .incarnation = backend->actor().incarnation(),
                            .threads = backend->config().threads,
                            .device = backend->config().device});
  }
  const telemetry::TelemetryConfig& telemetry = parts_.config.telemetry;
  view.exports = telemetry.enabled;
  for (const auto& [name, signal] : {std::pair{"traces", &telemetry.traces}, std::pair{"metrics", &telemetry.metrics},
                                     std::pair{"logs", &telemetry.logs}}) {
    if (view.exports && signal->enabled.value_or(true)) view.signals.emplace_back(name);
  }
  return view;
}

}  // namespace tuft::control
