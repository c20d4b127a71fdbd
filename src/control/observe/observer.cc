// The questions about telemetry, and the overview.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "control/observe/observer_impl.h"

namespace tuft::control {
namespace {

using telemetry_store::Filter;
using telemetry_store::SpanFunction;

// The longest trace that is shown as a whole.
constexpr size_t kSpansMax = 10'000;
// What ran shortly before an operation began to wait is what it waited for.
constexpr Nanos kBeforeMin = 2 * kSecond, kBeforeMax = 60 * kSecond;
// The time in which questions about the engines' work may begin, for all waits of a trace: as long as a query may take.
constexpr Nanos kWorkBudget = 2 * kSecond;

using telemetry_store::Span;

// The owner of the trace: of the first span that the server recorded for a user, or else of the first that has one.
std::string owner_of(const std::vector<Span>& spans) {
  const auto served = std::find_if(spans.begin(), spans.end(),
                                   [](const Span& span) { return !span.owner.empty() && !span.of_program; });
  if (served != spans.end()) return served->owner;
  const auto owned = std::find_if(spans.begin(), spans.end(), [](const Span& span) { return !span.owner.empty(); });
  return owned == spans.end() ? std::string() : owned->owner;
}

// Whoever knows the id of a trace can send spans with it. Takes out what programs of other users sent, which says
// nothing about the owner's trace.
std::vector<Span> take_foreign(std::vector<Span>& spans, const std::string& owner) {
  const auto foreign = std::stable_partition(spans.begin(), spans.end(),
                                             [&](const Span& span) { return !span.of_program || span.owner == owner; });
  std::vector<Span> taken(std::make_move_iterator(foreign), std::make_move_iterator(spans.end()));
  spans.erase(foreign, spans.end());
  return taken;
}

}  // namespace

ObserverImpl::ObserverImpl(Parts parts)
    : parts_(std::move(parts)),
      operators_(parts_.config.console.operators.begin(), parts_.config.console.operators.end()),
      started_wall_(parts_.clock.wall()),
      started_monotonic_(parts_.clock.monotonic()) {}

bool ObserverImpl::is_operator(const UserId& user) const {
  return operators_.contains(user.str());
}

telemetry_store::Viewer ObserverImpl::viewer(const UserId& user) const {
  return {.all = is_operator(user), .user = user.str()};
}

Status ObserverImpl::check_store() const {
  if (parts_.store != nullptr) return {};
  return failed_precondition("this server keeps no telemetry: set telemetry.store.enabled to true in its configuration",
                             "telemetry_store_off");
}

std::vector<UserId> ObserverImpl::seen_by(const UserId& user) const {
  return is_operator(user) ? parts_.keys.users() : std::vector<UserId>{user};
}

Nanos ObserverImpl::wall_of(Nanos monotonic) const {
  return started_wall_ + (monotonic - started_monotonic_);
}

Result<telemetry_store::TracePage> ObserverImpl::traces(const UserId& user, const Filter& filter,
                                                        const telemetry_store::PageOf& page) const {
  TUFT_TRY(check_store());
  return parts_.store->traces(viewer(user), filter, page);
}

Result<telemetry_store::DurationHistogram> ObserverImpl::durations(const UserId& user, const Filter& filter) const {
  TUFT_TRY(check_store());
  return parts_.store->durations(viewer(user), filter);
}

Result<telemetry_store::SpanSeries> ObserverImpl::span_series(const UserId& user, const Filter& filter,
                                                              SpanFunction function, std::string_view by,
                                                              Nanos step) const {
  TUFT_TRY(check_store());
  return parts_.store->span_series(viewer(user), filter, function, by, step);
}

// Users learn of others no more than that they were there: the sum of their time.
EngineWorkIn ObserverImpl::engine_work_of(const std::string& owner) const {
  return [this, owner, end = parts_.clock.monotonic() + kWorkBudget](Nanos from, Nanos until) {
    const Nanos before = std::clamp(until - from, kBeforeMin, kBeforeMax);
    EngineWork work = {.of_seconds = to_seconds(until - from + before)};
    for (const char* name : {"engine.*", "PREFILL", "DECODE"}) {
      if (parts_.clock.monotonic() >= end) return EngineWork{};
      const Filter filter{.time = {from - before, until}, .name = name, .of_server = true};
      const auto busy =
          parts_.store->span_series({.all = true}, filter, SpanFunction::kBusy, "user", until - from + before);
      if (!busy.ok()) return EngineWork{};  // a part of the work would blame somebody
      for (const auto& [user, points] : busy->series) {
        double seconds = 0;
        for (const double point : points) seconds += std::isfinite(point) ? point * to_seconds(busy->step) : 0;
        // A pass that several share belongs to nobody; each of them has a span for its part of it.
        if (!user.empty()) (user == owner ? work.own_seconds : work.others_seconds) += seconds;
      }
    }
    return work;
  };
}

Result<ObservedTrace> ObserverImpl::trace(const UserId& user, std::string_view trace_id) const {
  TUFT_TRY(check_store());
  ObservedTrace observed;
  TUFT_ASSIGN(observed.trace, parts_.store->trace(viewer(user), trace_id, kSpansMax));
  std::vector<Span>& spans = observed.trace.spans;
  const std::string owner = owner_of(spans);
  std::vector<Span> foreign = take_foreign(spans, owner);
  observed.critical_path = critical_path(observed.trace);
  observed.explanation = explain(observed.trace, observed.critical_path, engine_work_of(owner));
  spans.insert(spans.end(), std::make_move_iterator(foreign.begin()), std::make_move_iterator(foreign.end()));
  return observed;
}

Result<telemetry_store::LogPage> ObserverImpl::logs(const UserId& user, const telemetry_store::LogQuery& query) const {
  TUFT_TRY(check_store());
  return parts_.store->logs(viewer(user), query);
}

Result<std::vector<telemetry_store::MetricInfo>> ObserverImpl::metrics(const UserId& user) const {
  TUFT_TRY(check_store());
  return parts_.store->metrics(viewer(user));
}

Result<telemetry_store::MetricAnswer> ObserverImpl::metric(const UserId& user,
                                                           const telemetry_store::MetricQuery& query) const {
  TUFT_TRY(check_store());
  return parts_.store->metric(viewer(user), query);
}

Result<std::vector<telemetry_store::MetricExemplar>> ObserverImpl::exemplars(
    const UserId& user, const telemetry_store::MetricQuery& query) const {
  TUFT_TRY(check_store());
  return parts_.store->exemplars(viewer(user), query);
}

ModelRow ObserverImpl::model_row(const Model& model, const UnfinishedWork& own, bool is_whole) const {
  ModelRow row{.base_model = model.name(),
               .ready = model.ready(),
               .state = actor::worker_state_name(model.state()),
               .training = model.config().training,
               .sampling = model.config().sampling};
  for (const ModelBackendPtr& worker : model.workers()) {
    row.incarnation = std::max(row.incarnation, worker->actor().incarnation());
  }
  if (is_whole) {
    row.waiting_training = static_cast<int64_t>(model.training_load().waiting);
    row.waiting_sampling = static_cast<int64_t>(model.sampling_load().waiting);
    if (const Nanos last = model.facts().last_step(); last != 0) row.last_step = wall_of(last);
  } else if (const auto found = own.waiting.find(model.name()); found != own.waiting.end()) {
    row.waiting_training = found->second.training;
    row.waiting_sampling = found->second.sampling;
  }
  const bool waits = row.waiting_training > 0 || row.waiting_sampling > 0;
  if (!row.ready) {
    row.why_waiting = "the worker of " + row.base_model + " is starting, or does not answer";
  } else if (waits) {
    row.why_waiting = std::to_string(row.waiting_training) + " training operations and " +
                      std::to_string(row.waiting_sampling) + " samples wait for their turn at " + row.base_model;
  }
  return row;
}

Overview ObserverImpl::overview(const UserId& user) const {
  const bool is_whole = is_operator(user);
  Overview view{.now = parts_.clock.wall(), .started = started_wall_, .ready = true};
  const UnfinishedWork own = parts_.futures.unfinished_of(user);
  for (const ModelPtr& model : parts_.backends.models()) {
    ModelRow row = model_row(*model, own, is_whole);
    if (!row.ready && view.ready) {
      view.ready = false;
      view.reason = row.why_waiting;
    }
    view.models.push_back(std::move(row));
  }
  if (const Status store = parts_.state_store(); !store.ok()) {
    view.ready = false;
    view.reason = store.error().message;
  }
  int64_t active = 0;
  for (const UserId& each : seen_by(user)) {
    const int64_t sessions = parts_.sessions.use_of(each).count;
    view.sessions += sessions;
    view.runs += static_cast<int64_t>(parts_.runs.runs_of(each).size());
    view.samplers += parts_.samplers.count_of(each);
    view.pending += parts_.futures.unfinished_of(each).all;
    if (sessions > 0) ++active;
  }
  if (is_whole) view.users_active = active;
  return view;
}

}  // namespace tuft::control
