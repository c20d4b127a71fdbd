// tuft_recording_otel ENDPOINT: the same records through opentelemetry-cpp's SDK with its batch processors, configured
// as in a server. Its queues hold a burst, so that it also records and does not drop. See recording_runner.h.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <opentelemetry/context/context.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_exporter_factory.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_exporter_options.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_log_record_exporter_factory.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_log_record_exporter_options.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_metric_exporter_factory.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_metric_exporter_options.h>
#include <opentelemetry/metrics/sync_instruments.h>
#include <opentelemetry/sdk/logs/batch_log_record_processor_factory.h>
#include <opentelemetry/sdk/logs/batch_log_record_processor_options.h>
#include <opentelemetry/sdk/logs/logger_provider.h>
#include <opentelemetry/sdk/metrics/export/periodic_exporting_metric_reader_factory.h>
#include <opentelemetry/sdk/metrics/export/periodic_exporting_metric_reader_options.h>
#include <opentelemetry/sdk/metrics/meter_provider.h>
#include <opentelemetry/sdk/trace/batch_span_processor_factory.h>
#include <opentelemetry/sdk/trace/batch_span_processor_options.h>
#include <opentelemetry/sdk/trace/tracer_provider.h>

#include "recording_runner.h"

namespace tuft::bench {
namespace {

namespace otel = opentelemetry;
namespace sdk = opentelemetry::sdk;
namespace otlp = opentelemetry::exporter::otlp;

constexpr size_t kQueue = 32768;
constexpr auto kDelay = std::chrono::milliseconds(1000);
constexpr auto kFlush = std::chrono::seconds(10);
const std::string kSession = "3f0c8a52-6f4e-4b51-9d0b-0d3f7c1b2a49";

struct Sdk {
  std::shared_ptr<sdk::trace::TracerProvider> traces;
  std::shared_ptr<sdk::metrics::MeterProvider> metrics;
  std::shared_ptr<sdk::logs::LoggerProvider> logs;
  otel::nostd::shared_ptr<otel::trace::Tracer> tracer;
  otel::nostd::unique_ptr<otel::metrics::Counter<uint64_t>> counter;
  otel::nostd::unique_ptr<otel::metrics::Histogram<double>> histogram;
  otel::nostd::shared_ptr<otel::logs::Logger> logger;
};

std::shared_ptr<sdk::trace::TracerProvider> make_traces(const std::string& endpoint) {
  otlp::OtlpGrpcExporterOptions exporter;
  exporter.endpoint = endpoint;
  sdk::trace::BatchSpanProcessorOptions batch;
  batch.max_queue_size = kQueue;
  batch.schedule_delay_millis = kDelay;
  return std::make_shared<sdk::trace::TracerProvider>(
      sdk::trace::BatchSpanProcessorFactory::Create(otlp::OtlpGrpcExporterFactory::Create(exporter), batch));
}

std::shared_ptr<sdk::metrics::MeterProvider> make_metrics(const std::string& endpoint) {
  otlp::OtlpGrpcMetricExporterOptions exporter;
  exporter.endpoint = endpoint;
  sdk::metrics::PeriodicExportingMetricReaderOptions reader;
  reader.export_interval_millis = std::chrono::milliseconds(60000);
  reader.export_timeout_millis = std::chrono::milliseconds(10000);
  auto provider = std::make_shared<sdk::metrics::MeterProvider>();
  provider->AddMetricReader(sdk::metrics::PeriodicExportingMetricReaderFactory::Create(
      otlp::OtlpGrpcMetricExporterFactory::Create(exporter), reader));
  return provider;
}

std::shared_ptr<sdk::logs::LoggerProvider> make_logs(const std::string& endpoint) {
  otlp::OtlpGrpcLogRecordExporterOptions exporter;
  exporter.endpoint = endpoint;
  sdk::logs::BatchLogRecordProcessorOptions batch;
  batch.max_queue_size = kQueue;
  batch.schedule_delay_millis = kDelay;
  return std::make_shared<sdk::logs::LoggerProvider>(sdk::logs::BatchLogRecordProcessorFactory::Create(
      otlp::OtlpGrpcLogRecordExporterFactory::Create(exporter), batch));
}

void record_span(const Sdk& all, int64_t i) {
  all.tracer
      ->StartSpan("hf_model.forward_backward", {{"tuft.session_id", kSession},
                                                {"tuft.training_run_id", kSession},
                                                {"tuft.lora_id", kSession},
                                                {"tuft.backward", true},
                                                {"tuft.data_count", i},
                                                {"tuft.num_micro_batches", 1}})
      ->End();
}

void record_log(const Sdk& all) {
  all.logger->Info("operation accepted", otel::common::MakeAttributes({{"event.name", "future.enqueued"},
                                                                       {"tuft.request_id", kSession},
                                                                       {"tuft.operation_type", "sample"},
                                                                       {"tuft.seq_id", 3}}));
}

Recorder make(const std::string& endpoint) {
  auto all = std::make_shared<Sdk>();
  all->traces = make_traces(endpoint);
  all->metrics = make_metrics(endpoint);
  all->logs = make_logs(endpoint);
  all->tracer = all->traces->GetTracer("tuft.bench");
  const auto meter = all->metrics->GetMeter("tuft");
  all->counter = meter->CreateUInt64Counter("tuft.futures.created");
  all->histogram = meter->CreateDoubleHistogram("tuft.futures.wait_time");
  all->logger = all->logs->GetLogger("tuft", "tuft");
  const otel::context::Context context;
  return {
      .operations =
          {{"span", [all](int64_t i) { record_span(*all, i); }},
           {"counter",
            [all, context](int64_t) {
              all->counter->Add(1, {{"operation_type", "sample"}}, context);
            }},
           {"histogram",
            [all, context](int64_t i) {
              all->histogram->Record(static_cast<double>(i % 1000) * 0.001, {{"operation_type", "sample"}}, context);
            }},
           {"log", [all](int64_t) { record_log(*all); }}},
      .drain =
          [all] {
            all->traces->ForceFlush(kFlush);
            all->logs->ForceFlush(kFlush);
          },
      .close =
          [all] {
            all->metrics->ForceFlush(kFlush);
            all->traces->Shutdown();
            all->logs->Shutdown();
          }};
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  return tuft::bench::run_recorder(argc, argv, tuft::bench::make);
}
