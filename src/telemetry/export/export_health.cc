#include "telemetry/export/export_health.h"

#include <algorithm>
#include <utility>

#include "telemetry/instruments/health.h"
#include "telemetry/log.h"

namespace tuft::telemetry::internal {
namespace {

constexpr Nanos kWarningInterval = 30 * kSecond;

const Counter& sdk_exported(Signal signal) {
  const HealthMetrics& metrics = health_metrics();
  switch (signal) {
    case Signal::kTraces:
      return metrics.sdk_span_exported;
    case Signal::kLogs:
      return metrics.sdk_log_exported;
    case Signal::kMetrics:
      break;
  }
  return metrics.sdk_metric_exported;
}

std::string_view outcome_name(ExportResult::Outcome outcome) {
  switch (outcome) {
    case ExportResult::Outcome::kDelivered:
      return "delivered";
    case ExportResult::Outcome::kRetry:
      return "retry";
    case ExportResult::Outcome::kRefused:
      break;
  }
  return "refused";
}

int64_t whole(size_t count) {
  return static_cast<int64_t>(count);
}

}  // namespace

bool WarningLimit::allow(Nanos now, uint64_t& suppressed) {
  Nanos next = next_.load();
  if (now < next || !next_.compare_exchange_strong(next, now + kWarningInterval)) {
    suppressed_.fetch_add(1);
    return false;
  }
  suppressed = suppressed_.exchange(0);
  return true;
}

ExportHealth::ExportHealth(Signal signal, WarningLimit& warnings)
    : signal_(signal),
      warnings_(warnings),
      exported_ok_(health_metrics().exported.with({{"signal", signal_name(signal)}, {"outcome", "ok"}})),
      exported_failed_(health_metrics().exported.with({{"signal", signal_name(signal)}, {"outcome", "failed"}})),
      retries_(health_metrics().retries.with({{"signal", signal_name(signal)}})),
      rejected_(health_metrics().rejected.with({{"signal", signal_name(signal)}})),
      sdk_exported_(sdk_exported(signal).with({})),
      duration_(health_metrics().sdk_exporter_duration.with({{"signal", signal_name(signal)}})) {}

void ExportHealth::note_attempt(const ExportResult& result, Nanos duration, size_t count, size_t bytes) {
  log_debug("telemetry.export", "a request was sent to the collector",
            {{"signal", signal_name(signal_)},
             {"records", count},
             {"bytes", bytes},
             {"seconds", to_seconds(duration)},
             {"answer", outcome_name(result.outcome)}});
  if (result.outcome == ExportResult::Outcome::kDelivered) {
    duration_.record(to_seconds(duration));
    overdue_since_.store(system_clock().monotonic());
    if (std::exchange(failing_, false))
      log_info("telemetry.recovered", "the collector accepts data again",
               {{"signal", signal_name(signal_)}, {"lost_records", std::exchange(lost_, 0)}});
    return;
  }
  health_metrics().sdk_exporter_duration.record(to_seconds(duration),
                                                {{"signal", signal_name(signal_)}, {"error.type", result.error_type}});
  failing_ = true;
  ++failures_;
  say_failed(result);
}

void ExportHealth::say_failed(const ExportResult& result) {
  uint64_t suppressed = 0;
  if (!warnings_.allow(system_clock().monotonic(), suppressed)) {
    count_suppressed_log("telemetry.export_failed");
    return;
  }
  log_warning("telemetry.export_failed", "an export failed; requests are not affected",
              {{"signal", signal_name(signal_)},
               {"will_retry", result.outcome == ExportResult::Outcome::kRetry},
               {"lost_records", lost_},
               {"suppressed", suppressed},
               {"error.type", result.error_type},
               {"detail", result.message}});
}

void ExportHealth::note_retry() {
  retries_.add(1);
}

void ExportHealth::note_delivered(size_t count, const ExportResult& result) {
  const int64_t rejected = std::min(result.rejected, whole(count));
  exported_ok_.add(whole(count) - rejected);
  sdk_exported_.add(whole(count) - rejected);
  if (rejected == 0) return;
  exported_failed_.add(rejected);
  rejected_.add(rejected);
  sdk_exported(signal_).add(rejected, {{"error.type", "rejected"}});
  uint64_t suppressed = 0;
  if (!rejections_.allow(system_clock().monotonic(), suppressed)) {
    count_suppressed_log("telemetry.rejected");
    return;
  }
  log_warning("telemetry.rejected", "the collector accepted only a part of the data",
              {{"signal", signal_name(signal_)},
               {"rejected", rejected},
               {"suppressed", suppressed},
               {"detail", result.message}});
}

void ExportHealth::note_lost(size_t count, std::string_view reason, const ExportResult& result) {
  exported_failed_.add(whole(count));
  sdk_exported(signal_).add(whole(count), {{"error.type", result.error_type}});
  // A failed export does not lose metrics: the next one includes them.
  if (signal_ == Signal::kMetrics) return;
  note_dropped(count, reason);
  lost_ += count;
}

void ExportHealth::note_waiting() {
  Nanos nothing = 0;
  overdue_since_.compare_exchange_strong(nothing, system_clock().monotonic());
}

void ExportHealth::note_idle() {
  if (!failing_) overdue_since_.store(0);
}

Nanos ExportHealth::overdue() const {
  const Nanos since = overdue_since_.load();
  return since == 0 ? 0 : system_clock().monotonic() - since;
}

void ExportHealth::note_dropped(size_t count, std::string_view reason) {
  health_metrics().dropped.add(whole(count), {{"signal", signal_name(signal_)}, {"reason", reason}});
}

}  // namespace tuft::telemetry::internal
