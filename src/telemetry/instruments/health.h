// The library's metrics of its own health: dropped records, retries and costs. The metrics page shows them too, so that
// they can be read while the collector is unavailable. Internal to telemetry.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry::internal {

struct HealthMetrics {
  ObservableCounter sdk_span_started{
      {.name = "otel.sdk.span.started",
       .unit = "{span}",
       .description = "Spans recorded, by sampling decision (RECORD_AND_SAMPLE, RECORD_ONLY)",
       .labels = {"otel.span.sampling_result"},
       .recorded_by = RecordedBy::kBoth}};
  ObservableGauge sdk_span_live{{.name = "otel.sdk.span.live",
                                 .unit = "{span}",
                                 .description = "Spans started and not yet ended",
                                 .recorded_by = RecordedBy::kBoth}};
  ObservableGauge sdk_span_queue_size{{.name = "otel.sdk.processor.span.queue.size",
                                       .unit = "{span}",
                                       .description = "Spans that wait for the exporter",
                                       .recorded_by = RecordedBy::kBoth}};
  ObservableGauge sdk_span_queue_capacity{{.name = "otel.sdk.processor.span.queue.capacity",
                                           .unit = "{span}",
                                           .description = "Spans that may wait for the exporter",
                                           .recorded_by = RecordedBy::kBoth}};
  ObservableGauge sdk_log_queue_size{{.name = "otel.sdk.processor.log.queue.size",
                                      .unit = "{log_record}",
                                      .description = "Log records that wait for the exporter",
                                      .recorded_by = RecordedBy::kBoth}};
  ObservableGauge sdk_log_queue_capacity{{.name = "otel.sdk.processor.log.queue.capacity",
                                          .unit = "{log_record}",
                                          .description = "Log records that may wait for the exporter",
                                          .recorded_by = RecordedBy::kBoth}};
  Counter sdk_span_exported{{.name = "otel.sdk.exporter.span.exported",
                             .unit = "{span}",
                             .description = "Spans whose export ended; error.type if it failed",
                             .labels = {"error.type"},
                             .recorded_by = RecordedBy::kBoth}};
  Counter sdk_log_exported{{.name = "otel.sdk.exporter.log.exported",
                            .unit = "{log_record}",
                            .description = "Log records whose export ended; error.type if it failed",
                            .labels = {"error.type"},
                            .recorded_by = RecordedBy::kBoth}};
  Counter sdk_metric_exported{{.name = "otel.sdk.exporter.metric_data_point.exported",
                               .unit = "{data_point}",
                               .description = "Metric points whose export ended; error.type if it failed",
                               .labels = {"error.type"},
                               .recorded_by = RecordedBy::kBoth}};
  Histogram sdk_exporter_duration{{.name = "otel.sdk.exporter.operation.duration",
                                   .unit = "s",
                                   .description = "Duration of one attempt to export",
                                   .labels = {"signal", "error.type"},
                                   .bounds = bounds_operation(),
                                   .recorded_by = RecordedBy::kBoth}};
  Histogram sdk_collection_duration{{.name = "otel.sdk.metric_reader.collection.duration",
                                     .unit = "s",
                                     .description = "Collecting the metrics of this process",
                                     .bounds = bounds_operation(),
                                     .recorded_by = RecordedBy::kBoth}};
  Counter dropped{{.name = "tuft.telemetry.dropped",
                   .unit = "{record}",
                   .description = "Spans, log records and log lines lost before export, by signal and reason",
                   .labels = {"signal", "reason"},
                   .recorded_by = RecordedBy::kBoth}};
  Counter exported{{.name = "tuft.telemetry.exported",
                    .unit = "{record}",
                    .description = "Spans, log records and metric points given to the exporter (ok, failed)",
                    .labels = {"signal", "outcome"},
                    .recorded_by = RecordedBy::kBoth}};
  Counter rejected{{.name = "tuft.telemetry.rejected",
                    .unit = "{record}",
                    .description = "Records that the collector refused while it accepted the rest (partial success)",
                    .labels = {"signal"},
                    .recorded_by = RecordedBy::kBoth}};
  Counter retries{{.name = "tuft.telemetry.retries",
                   .unit = "{export}",
                   .description = "Exports retried",
                   .labels = {"signal"},
                   .recorded_by = RecordedBy::kBoth}};
  ObservableGauge last_success_age{
      {.name = "tuft.telemetry.export.last_success.age",
       .unit = "s",
       .description = "Time since the last successful export, or since data began to wait after it; 0 while none wait "
                      "and none failed",
       .labels = {"signal"},
       .recorded_by = RecordedBy::kBoth}};
  Counter sampled_out{
      {.name = "tuft.telemetry.sampled_out",
       .unit = "{span}",
       .description = "Spans that were recorded but not exported because of sampling (ratio, hold_full)",
       .labels = {"reason"},
       .recorded_by = RecordedBy::kBoth}};
  ObservableGauge archive_bytes{{.name = "tuft.telemetry.archive.bytes",
                                 .unit = "By",
                                 .description = "Finished spans kept for the export of a session's trace",
                                 .recorded_by = RecordedBy::kBoth}};
  Counter archive_evicted{{.name = "tuft.telemetry.archive.evicted",
                           .unit = "{span}",
                           .description = "Spans removed from the archive to make room for newer ones",
                           .recorded_by = RecordedBy::kBoth}};
  ObservableGauge ring_high_water{{.name = "tuft.telemetry.ring.high_water",
                                   .unit = "1",
                                   .description = "Highest fill of any thread's ring since the last collection",
                                   .recorded_by = RecordedBy::kBoth}};
  ObservableGauge series{{.name = "tuft.telemetry.series",
                          .unit = "{series}",
                          .description = "Series of all instruments",
                          .recorded_by = RecordedBy::kBoth}};
  Counter series_overflowed{{.name = "tuft.telemetry.series.overflowed",
                             .unit = "{record}",
                             .description = "Look-ups that found an instrument's label sets full, by instrument",
                             .labels = {"instrument"},
                             .recorded_by = RecordedBy::kBoth}};
  Counter nonfinite{{.name = "tuft.telemetry.nonfinite",
                     .unit = "{value}",
                     .description = "Values refused because they were not finite, by instrument",
                     .labels = {"instrument"},
                     .recorded_by = RecordedBy::kBoth}};
  ObservableCounter thread_cpu{{.name = "tuft.telemetry.thread.cpu",
                                .unit = "s",
                                .description = "CPU time of the telemetry threads",
                                .recorded_by = RecordedBy::kBoth}};
  Counter log_suppressed{{.name = "tuft.telemetry.log_suppressed",
                          .unit = "{record}",
                          .description = "Log records suppressed by rate limits, by event",
                          .labels = {"event"},
                          .recorded_by = RecordedBy::kBoth}};
  Counter context_malformed{
      {.name = "tuft.telemetry.context.malformed",
       .unit = "{header}",
       .description = "Trace context headers that could not be read (traceparent, tracestate, baggage)",
       .labels = {"header"},
       .recorded_by = RecordedBy::kBoth}};
};

// Returns the instruments of the process, which the first call makes. Thread-safe.
const HealthMetrics& health_metrics();

}  // namespace tuft::telemetry::internal
