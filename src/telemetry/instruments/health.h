// Telemetry's own health: what it dropped, retried and cost. Read it at /metrics when the collector is away. Part of
// Metrics.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry {

struct HealthInstruments {
  ObservableCounter sdk_span_started{
      {.name = "otel.sdk.span.started",
       .unit = "{span}",
       .description = "Spans recorded, by what sampling said (RECORD_AND_SAMPLE, RECORD_ONLY)",
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
                             .description = "Spans that an export ended for; error.type where it failed",
                             .labels = {"error.type"},
                             .recorded_by = RecordedBy::kBoth}};
  Counter sdk_log_exported{{.name = "otel.sdk.exporter.log.exported",
                            .unit = "{log_record}",
                            .description = "Log records that an export ended for; error.type where it failed",
                            .labels = {"error.type"},
                            .recorded_by = RecordedBy::kBoth}};
  Counter sdk_metric_exported{{.name = "otel.sdk.exporter.metric_data_point.exported",
                               .unit = "{data_point}",
                               .description = "Metric points that an export ended for; error.type where it failed",
                               .labels = {"error.type"},
                               .recorded_by = RecordedBy::kBoth}};
  Histogram sdk_exporter_duration{{.name = "otel.sdk.exporter.operation.duration",
                                   .unit = "s",
                                   .description = "One export, each attempt on its own",
                                   .labels = {"signal", "error.type"},
                                   .bounds = bounds_operation(),
                                   .recorded_by = RecordedBy::kBoth}};
  Histogram sdk_collection_duration{{.name = "otel.sdk.metric_reader.collection.duration",
                                     .unit = "s",
                                     .description = "Collecting the metrics of this process",
                                     .bounds = bounds_operation(),
                                     .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_dropped{{.name = "tuft.telemetry.dropped",
                             .unit = "{record}",
                             .description = "Spans, log records and log lines lost before export, by signal and reason",
                             .labels = {"signal", "reason"},
                             .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_exported{{.name = "tuft.telemetry.exported",
                              .unit = "{record}",
                              .description = "Spans, log records and metric points given to the exporter (ok, failed)",
                              .labels = {"signal", "outcome"},
                              .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_rejected{
      {.name = "tuft.telemetry.rejected",
       .unit = "{record}",
       .description = "Records that the collector took the rest of and refused (partial success)",
       .labels = {"signal"},
       .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_retries{{.name = "tuft.telemetry.retries",
                             .unit = "{export}",
                             .description = "Exports tried again",
                             .labels = {"signal"},
                             .recorded_by = RecordedBy::kBoth}};
  ObservableGauge telemetry_last_success_age{
      {.name = "tuft.telemetry.export.last_success.age",
       .unit = "s",
       .description = "Time since an export last succeeded; since the start where none has",
       .labels = {"signal"},
       .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_sampled_out{
      {.name = "tuft.telemetry.sampled_out",
       .unit = "{span}",
       .description = "Spans that sampling kept back after they were recorded (ratio, hold_full)",
       .labels = {"reason"},
       .recorded_by = RecordedBy::kBoth}};
  ObservableGauge telemetry_archive_bytes{{.name = "tuft.telemetry.archive.bytes",
                                           .unit = "By",
                                           .description = "Finished spans kept for the export of a session's trace",
                                           .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_archive_evicted{{.name = "tuft.telemetry.archive.evicted",
                                     .unit = "{span}",
                                     .description = "Spans that made room in the archive for newer ones",
                                     .recorded_by = RecordedBy::kBoth}};
  ObservableGauge telemetry_ring_high_water{
      {.name = "tuft.telemetry.ring.high_water",
       .unit = "1",
       .description = "Highest fill of any thread's ring since the last collection",
       .recorded_by = RecordedBy::kBoth}};
  ObservableGauge telemetry_series{{.name = "tuft.telemetry.series",
                                    .unit = "{series}",
                                    .description = "Series of all instruments",
                                    .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_series_overflowed{
      {.name = "tuft.telemetry.series.overflowed",
       .unit = "{record}",
       .description = "Look-ups that found an instrument's label sets full, by instrument",
       .labels = {"instrument"},
       .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_nonfinite{{.name = "tuft.telemetry.nonfinite",
                               .unit = "{value}",
                               .description = "Values refused because they were not finite, by instrument",
                               .labels = {"instrument"},
                               .recorded_by = RecordedBy::kBoth}};
  ObservableCounter telemetry_thread_cpu{{.name = "tuft.telemetry.thread.cpu",
                                          .unit = "s",
                                          .description = "CPU time of the telemetry threads",
                                          .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_log_suppressed{{.name = "tuft.telemetry.log_suppressed",
                                    .unit = "{record}",
                                    .description = "Log records left out by rate limits, by event",
                                    .labels = {"event"},
                                    .recorded_by = RecordedBy::kBoth}};
  Counter telemetry_context_malformed{
      {.name = "tuft.telemetry.context.malformed",
       .unit = "{header}",
       .description = "Trace context headers that could not be read (traceparent, tracestate, baggage)",
       .labels = {"header"},
       .recorded_by = RecordedBy::kBoth}};
};

}  // namespace tuft::telemetry
