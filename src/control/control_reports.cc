#include "control/control_reports.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "control/workers/worker_telemetry.h"
#include "metrics/futures.h"
#include "metrics/sampling.h"
#include "metrics/training.h"
#include "telemetry/record/tail_sampler.h"

namespace tuft::control {
namespace {

using Observe = telemetry::Observable::Observe;

std::string_view state_of(const Run& run, const Sessions& sessions) {
  const bool idle = sessions.is_idle(run.session);
  MutexLock lock(run.mutex);
  if (run.broken) return "corrupted";
  if (run.restoring_incarnation > 0 || (run.created && !run.backend()->holds(run.adapter_incarnation)))
    return "restoring";
  return idle && run.running == nullptr && run.log.empty() ? "idle" : "active";
}

}  // namespace

ControlReports::ControlReports(const Parts& parts) : parts_(parts) {
  observe_futures();
  observe_dispatch();
  observe_runs();
  observe_kept();
  telemetry::on_traces_kept(
      [&backends = parts_.backends](std::span<const telemetry::TraceId> traces) { keep_traces(backends, traces); });
}

ControlReports::~ControlReports() {
  telemetry::on_traces_kept({});
  for (const telemetry::Observable* one : observed_) one->set_callback({});
}

void ControlReports::observe(const telemetry::Observable& instrument, telemetry::Observable::Callback callback) {
  observed_.push_back(&instrument);
  instrument.set_callback(std::move(callback));
}

void ControlReports::observe_futures() {
  FutureStore& futures = parts_.futures;
  observe(metrics::futures().store_bytes,
          [&futures](const Observe& out) { out(static_cast<double>(futures.kept_bytes()), {}); });
  observe(metrics::futures().oldest_age, [&futures](const Observe& out) {
    // Metrics are collected by name, so that tuft.futures.queue_length is read after this.
    futures.count_queue_states();
    const auto [queued, running] = futures.oldest_ages();
    out(to_seconds(queued), {{"state", "queued"}});
    out(to_seconds(running), {{"state", "running"}});
  });
  const auto by_operation = [&futures](std::atomic<int64_t> FutureTelemetry::Counts::*count) {
    return [&futures, count](const Observe& out) {
      for (size_t i = 0; i < kOperationTypes; ++i) {
        const auto type = static_cast<OperationType>(i);
        out(static_cast<double>((futures.counts(type).*count).load()), {{"operation_type", operation_name(type)}});
      }
    };
  };
  observe(metrics::futures().queued, by_operation(&FutureTelemetry::Counts::queued));
  observe(metrics::futures().running, by_operation(&FutureTelemetry::Counts::running));
  observe(metrics::futures().ready_unread, by_operation(&FutureTelemetry::Counts::unread));
  observe(metrics::futures().payload_bytes,
          [&budget = parts_.budget](const Observe& out) { out(static_cast<double>(budget.bytes()), {}); });
}

void ControlReports::observe_dispatch() {
  using Load = DispatchQueue::Load;
  const auto by_queue = [&backends = parts_.backends](auto number) {
    return [&backends, number](const Observe& out) {
      for (const ModelPtr& of_model : backends.models()) {
        const telemetry::Label model = {"base_model", of_model->name()};
        out(number(of_model->training_load()), {model, {"kind", "training"}});
        out(number(of_model->sampling_load()), {model, {"kind", "sampling"}});
      }
    };
  };
  observe(metrics::futures().dispatch_waiting,
          by_queue([](const Load& load) { return static_cast<double>(load.waiting); }));
  observe(metrics::futures().dispatch_in_flight,
          by_queue([](const Load& load) { return static_cast<double>(load.in_flight); }));
}

void ControlReports::observe_runs() {
  const ModelBackends& backends = parts_.backends;
  const RunTable& runs = parts_.runs;
  observe(metrics::training().runs, [&backends, &runs, &sessions = parts_.sessions](const Observe& out) {
    std::map<std::pair<std::string, std::string_view>, int> counts;
    for (const ModelPtr& model : backends.models()) {
      for (const std::string_view state : {"active", "idle", "restoring", "corrupted"}) counts[{model->name(), state}];
    }
    for (const RunPtr& run : runs.all()) ++counts[{run->backend()->name(), state_of(*run, sessions)}];
    for (const auto& [key, count] : counts) out(count, {{"base_model", key.first}, {"state", key.second}});
  });
  observe(metrics::training().journal_bytes, [&backends, &runs](const Observe& out) {
    std::map<std::string, int64_t> bytes;
    for (const ModelPtr& model : backends.models()) {
      if (model->workers().front()->config().replicate) bytes[model->name()] = 0;
    }
    for (const RunPtr& run : runs.all()) {
      const auto of_model = bytes.find(run->backend()->name());
      if (of_model == bytes.end()) continue;
      MutexLock lock(run->mutex);
      of_model->second += run->journal.bytes();
    }
    for (const auto& [model, sum] : bytes) out(static_cast<double>(sum), {{"base_model", model}});
  });
  observe(metrics::training().last_step_age, [&backends, &clock = parts_.clock](const Observe& out) {
    for (const ModelPtr& model : backends.models()) {
      const Nanos last = model->facts().last_step();
      if (last != 0) out(to_seconds(clock.monotonic() - last), {{"base_model", model->name()}});
    }
  });
}

void ControlReports::observe_kept() {
  observe(metrics::training().checkpoint_stored, [&checkpoints = parts_.checkpoints](const Observe& out) {
    out(static_cast<double>(checkpoints.used()), {});
  });
  const SampleRecords& records = parts_.records;
  observe(metrics::sampling().records_active,
          [&records](const Observe& out) { out(static_cast<double>(records.size()), {}); });
  observe(metrics::sampling().records_bytes,
          [&records](const Observe& out) { out(static_cast<double>(records.bytes()), {}); });
}

}  // namespace tuft::control
