// Tests the precedence of variables and keys for each setting.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "telemetry/settings/settings.h"
#include "telemetry/settings/tests/clean_environment.h"
#include "telemetry/settings/tests/settings_text.h"

namespace tuft::telemetry::internal {
namespace {

using Read = std::function<std::string(const Settings&)>;

struct Case {
  const char* what;
  Variables variables;
  Configure configure;
  Read read;
  std::string expected;
};

class EnvironmentMatrix : public ::testing::TestWithParam<Case> {};

TEST_P(EnvironmentMatrix, StrongestSourceDecides) {
  const Case& row = GetParam();
  const CleanEnvironment environment(row.variables);
  TelemetryConfig config{.enabled = true};
  row.configure(config);
  const auto settings = read_settings(config);
  ASSERT_TRUE(settings.ok()) << row.what << ": " << settings.error().message;
  EXPECT_EQ(row.read(*settings), row.expected) << row.what;
}

INSTANTIATE_TEST_SUITE_P(
    Protocol, EnvironmentMatrix,
    ::testing::Values(
        Case{"default", {}, no_key, protocols, "grpc grpc grpc"},
        Case{"all", {{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}}, no_key, protocols, "http http http"},
        Case{"the signal's over all",
             {{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"}},
             no_key,
             protocols,
             "grpc http http"},
        Case{"exporters",
             {{"OTEL_TRACES_EXPORTER", "console"}, {"OTEL_METRICS_EXPORTER", "none"}, {"OTEL_LOGS_EXPORTER", "otlp"}},
             no_key,
             protocols,
             "console none grpc"},
        Case{"prometheus is at /metrics",
             {{"OTEL_METRICS_EXPORTER", "prometheus"}},
             no_key,
             protocols,
             "grpc none grpc"},
        Case{"otlp beside another",
             {{"OTEL_METRICS_EXPORTER", "otlp, prometheus"}},
             no_key,
             protocols,
             "grpc grpc grpc"},
        Case{"empty counts as absent", {{"OTEL_TRACES_EXPORTER", ""}}, no_key, protocols, "grpc grpc grpc"},
        Case{"configuration over variables",
             {{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"}},
             [](TelemetryConfig& config) { config.protocol = Protocol::kHttpProtobuf; },
             protocols,
             "http http http"},
        Case{"the signal's in the configuration",
             {},
             [](TelemetryConfig& config) {
               config.protocol = Protocol::kHttpProtobuf;
               config.logs.protocol = Protocol::kConsole;
               config.metrics.enabled = false;
             },
             protocols,
             "http none console"},
        Case{"asked for by name, the environment cannot take it away",
             {{"OTEL_TRACES_EXPORTER", "none"}, {"OTEL_LOGS_EXPORTER", "none"}},
             [](TelemetryConfig& config) { config.traces.enabled = true; },
             protocols,
             "grpc grpc none"},
        Case{"debug over everything but a signal that is off",
             {{"TUFT_OTEL_DEBUG", "1"}},
             [](TelemetryConfig& config) {
               config.protocol = Protocol::kHttpProtobuf;
               config.logs.enabled = false;
             },
             protocols,
             "console console none"},
        Case{"a path means HTTP",
             {{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://prom:9090/api/v1/otlp/v1/metrics"},
              {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:4318/v1/traces"}},
             no_key,
             protocols,
             "http http grpc"},
        Case{"the address that decided is named",
             {{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://prom:9090/api/v1/otlp/v1/metrics"},
              {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"},
              {"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/protobuf"}},
             no_key,
             protocol_origins,
             "OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_METRICS_ENDPOINT "},
        Case{"the port of OTLP over HTTP means HTTP",
             {},
             [](TelemetryConfig& config) {
               config.otlp_endpoint = "http://collector:4318";
               config.logs.endpoint = "http://logs:14318";
             },
             protocols,
             "http http grpc"},
        Case{"without a scheme the port means nothing",
             {{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"}},
             no_key,
             protocols,
             "grpc grpc grpc"},
        Case{"a protocol that is named is stronger than the port",
             {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}},
             no_key,
             protocols,
             "grpc grpc grpc"},
        Case{"a signal that is off stays off",
             {{"OTEL_TRACES_EXPORTER", "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"}},
             no_key,
             protocols,
             "none http http"},
        Case{"FastDeploy's exporter", {{"TRACES_EXPORTER", "console"}}, no_key, protocols, "console grpc grpc"},
        Case{"FastDeploy's is the weakest",
             {{"TRACES_EXPORTER", "console"}, {"OTEL_TRACES_EXPORTER", "otlp"}},
             no_key,
             protocols,
             "grpc grpc grpc"},
        Case{"disabled SDK", {{"OTEL_SDK_DISABLED", "TRUE"}}, no_key, protocols, "none none none"},
        Case{"not disabled", {{"OTEL_SDK_DISABLED", "yes please"}}, no_key, protocols, "grpc grpc grpc"}));

INSTANTIATE_TEST_SUITE_P(
    Endpoint, EnvironmentMatrix,
    ::testing::Values(
        Case{"default", {}, no_key, endpoints, "localhost:4317 localhost:4317 localhost:4317"},
        Case{"default over HTTP",
             {{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}},
             no_key,
             endpoints,
             "http://localhost:4318/v1/traces http://localhost:4318/v1/metrics http://localhost:4318/v1/logs"},
        Case{"base and signal over HTTP",
             {{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
              {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318/otlp/"},
              {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://prom:9090/api/v1/otlp/v1/metrics"}},
             no_key,
             endpoints,
             "http://base:4318/otlp/v1/traces http://prom:9090/api/v1/otlp/v1/metrics http://base:4318/otlp/v1/logs"},
        Case{"endpoints over HTTP without a protocol",
             {{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://localhost:9090/api/v1/otlp/v1/metrics"},
              {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:4318/v1/traces"}},
             no_key,
             endpoints,
             "http://localhost:4318/v1/traces http://localhost:9090/api/v1/otlp/v1/metrics localhost:4317"},
        Case{"base and signal over gRPC",
             {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:1/"}, {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://logs"}},
             no_key,
             endpoints,
             "base:1 base:1 logs:4317"},
        Case{"TuFT's over OpenTelemetry's",
             {{"TUFT_OTLP_ENDPOINT", "http://tuft:2"}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1"}},
             no_key,
             endpoints,
             "tuft:2 tuft:2 tuft:2"},
        Case{"configuration over TuFT's",
             {{"TUFT_OTLP_ENDPOINT", "http://tuft:2"}},
             [](TelemetryConfig& config) {
               config.otlp_endpoint = "http://file:3";
               config.traces.endpoint = "http://file-traces:4";
             },
             endpoints,
             "file-traces:4 file:3 file:3"},
        Case{"the configuration's base over HTTP",
             {},
             [](TelemetryConfig& config) {
               config.protocol = Protocol::kHttpProtobuf;
               config.otlp_endpoint = "http://file:4318";
               config.logs.endpoint = "http://logs:80/in";
             },
             endpoints,
             "http://file:4318/v1/traces http://file:4318/v1/metrics http://logs:80/in"},
        Case{"FastDeploy's, for traces",
             {{"EXPORTER_OTLP_ENDPOINT", "http://fd:4317"}},
             no_key,
             endpoints,
             "fd:4317 localhost:4317 localhost:4317"},
        Case{"FastDeploy's over HTTP, with its path",
             {{"EXPORTER_OTLP_ENDPOINT", "http://fd:4318/v1/traces"},
              {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"}},
             no_key,
             endpoints,
             "http://fd:4318/v1/traces localhost:4317 localhost:4317"},
        Case{"FastDeploy's is the weakest",
             {{"EXPORTER_OTLP_ENDPOINT", "http://fd:4317"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:1"}},
             no_key,
             endpoints,
             "otel:1 otel:1 otel:1"},
        Case{"file",
             {},
             [](TelemetryConfig& config) {
               config.protocol = Protocol::kFile;
               config.file_path = "/tmp/all";
               config.logs.endpoint = "/tmp/logs";
             },
             endpoints,
             "/tmp/all /tmp/all /tmp/logs"},
        Case{"scheme", {{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://a"}}, no_key, secure, "tls plain"},
        Case{"no scheme, then secure", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "a:1"}}, no_key, secure, "tls tls"},
        Case{"no scheme, insecure by the signal",
             {{"OTEL_EXPORTER_OTLP_ENDPOINT", "a:1"}, {"OTEL_EXPORTER_OTLP_LOGS_INSECURE", "true"}},
             no_key,
             secure,
             "tls plain"},
        Case{"a scheme is stronger than insecure",
             {{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://a:1"}, {"OTEL_EXPORTER_OTLP_INSECURE", "true"}},
             no_key,
             secure,
             "tls tls"}));

INSTANTIATE_TEST_SUITE_P(
    Export, EnvironmentMatrix,
    ::testing::Values(
        Case{"headers",
             {{"OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a%3Db, x=1=2,broken, bad name=1,crlf=%0d%0a"}},
             no_key,
             headers,
             "authorization=Bearer a=b;x=1=2;|authorization=Bearer a=b;x=1=2;|"},
        Case{"headers of a signal are not sent to others",
             {{"OTEL_EXPORTER_OTLP_HEADERS", "a=1"}, {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2"}},
             no_key,
             headers,
             "b=2;|a=1;|"},
        Case{"headers of the configuration",
             {{"OTEL_EXPORTER_OTLP_HEADERS", "a=1"}},
             [](TelemetryConfig& config) {
               config.headers = {{"c", "3"}};
             },
             headers,
             "c=3;|c=3;|"},
        Case{"headers of FastDeploy",
             {{"EXPORTER_OTLP_HEADERS", "Authentication=T=x"}},
             no_key,
             headers,
             "authentication=T=x;||"},
        Case{"timeouts",
             {{"OTEL_EXPORTER_OTLP_TIMEOUT", "7000"}, {"OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "500"}},
             no_key,
             timeouts,
             "7000 7000 500"},
        Case{"timeouts of the callers",
             {{"OTEL_METRIC_EXPORT_TIMEOUT", "300"},
              {"OTEL_BSP_EXPORT_TIMEOUT", "400"},
              {"OTEL_BLRP_EXPORT_TIMEOUT", "40000"},
              {"OTEL_EXPORTER_OTLP_TIMEOUT", "9000"}},
             no_key,
             timeouts,
             "400 300 9000"},
        Case{"timeouts that are none",
             {{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"}, {"OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "0"}},
             no_key,
             timeouts,
             "10000 10000 10000"},
        Case{"timeout of the configuration",
             {{"OTEL_EXPORTER_OTLP_TIMEOUT", "7000"}},
             [](TelemetryConfig& config) { config.export_timeout = 3 * kSecond; },
             timeouts,
             "3000 3000 3000"},
        Case{"compression", {{"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"}}, no_key, compression, "gzip none"},
        Case{
            "compression that is none", {{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"}}, no_key, compression, "none none"},
        Case{"compression of the configuration",
             {{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"}},
             [](TelemetryConfig& config) { config.compression = Compression::kNone; },
             compression,
             "none none"},
        Case{"temporality",
             {{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"}},
             no_key,
             temporality,
             "delta"},
        Case{"temporality that is none",
             {{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "x"}},
             no_key,
             temporality,
             "cumulative"},
        Case{"exemplars", {{"OTEL_METRICS_EXEMPLAR_FILTER", "Always_On"}}, no_key, histograms, "always_on explicit"},
        Case{"exemplars of another word",
             {{"OTEL_METRICS_EXEMPLAR_FILTER", "x"}},
             no_key,
             histograms,
             "trace_based explicit"},
        Case{"exemplars of the configuration",
             {{"OTEL_METRICS_EXEMPLAR_FILTER", "always_on"}},
             [](TelemetryConfig& config) { config.exemplar_filter = ExemplarFilter::kAlwaysOff; },
             histograms,
             "always_off explicit"},
        Case{"exponential histograms",
             {{"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "base2_exponential_bucket_histogram"}},
             no_key,
             histograms,
             "trace_based exponential"},
        Case{"histograms of the configuration",
             {{"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "base2_exponential_bucket_histogram"}},
             [](TelemetryConfig& config) { config.histogram_aggregation = HistogramAggregation::kExplicitBuckets; },
             histograms,
             "trace_based explicit"},
        Case{"the environment is ignored",
             {{"OTEL_METRICS_EXEMPLAR_FILTER", "always_on"},
              {"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "base2_exponential_bucket_histogram"}},
             [](TelemetryConfig& config) { config.environment_ignored = true; },
             histograms,
             "trace_based explicit"},
        Case{"temporality of the configuration",
             {{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"}},
             [](TelemetryConfig& config) { config.temporality = Temporality::kLowMemory; },
             temporality,
             "lowmemory"}));

INSTANTIATE_TEST_SUITE_P(
    Pace, EnvironmentMatrix,
    ::testing::Values(
        Case{"default", {}, no_key, batches, "1000 512 32768;1000 512 32768;"},
        Case{"batch processors",
             {{"OTEL_BSP_SCHEDULE_DELAY", "250"},
              {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16"},
              {"OTEL_BLRP_MAX_QUEUE_SIZE", "64"}},
             no_key,
             batches,
             "250 16 32768;1000 64 64;"},
        Case{"nonsense",
             {{"OTEL_BSP_SCHEDULE_DELAY", "soon"}, {"OTEL_BSP_MAX_QUEUE_SIZE", "-3"}},
             no_key,
             batches,
             "1000 512 32768;1000 512 32768;"},
        Case{"configuration",
             {{"OTEL_BSP_SCHEDULE_DELAY", "250"}},
             [](TelemetryConfig& config) {
               config.batch_delay = 2 * kSecond;
               config.batch_max = 3;
               config.queue_max = 4;
             },
             batches,
             "2000 3 4;2000 3 4;"},
        Case{"metrics", {{"OTEL_METRIC_EXPORT_INTERVAL", "5000"}}, no_key, metric_interval, "5000"},
        Case{"metrics, as some write it", {{"OTEL_METRICS_EXPORT_INTERVAL", "1000"}}, no_key, metric_interval, "1000"},
        Case{"metrics, the standard's name first",
             {{"OTEL_METRICS_EXPORT_INTERVAL", "1000"}, {"OTEL_METRIC_EXPORT_INTERVAL", "2000"}},
             no_key,
             metric_interval,
             "2000"},
        Case{"metrics, configuration",
             {{"OTEL_METRIC_EXPORT_INTERVAL", "5000"}},
             [](TelemetryConfig& config) { config.metric_interval = 15 * kSecond; },
             metric_interval,
             "15000"}));

INSTANTIATE_TEST_SUITE_P(
    Sampling, EnvironmentMatrix,
    ::testing::Values(
        Case{"default", {}, no_key, sampling, "1 parent errors"},
        Case{"ratio",
             {{"OTEL_TRACES_SAMPLER", "traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", "0.25"}},
             no_key,
             sampling,
             "0.25 alone errors"},
        Case{"parent and ratio",
             {{"OTEL_TRACES_SAMPLER", "parentbased_traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", "0"}},
             no_key,
             sampling,
             "0 parent errors"},
        Case{"ratio that is none",
             {{"OTEL_TRACES_SAMPLER", "traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", "nan"}},
             no_key,
             sampling,
             "1 alone errors"},
        Case{"off is off", {{"OTEL_TRACES_SAMPLER", "always_off"}}, no_key, sampling, "0 alone"},
        Case{"off, but errors asked for",
             {{"OTEL_TRACES_SAMPLER", "always_off"}},
             [](TelemetryConfig& config) { config.keep_errors = true; },
             sampling,
             "0 alone errors"},
        Case{"unknown", {{"OTEL_TRACES_SAMPLER", "jaeger_remote"}}, no_key, sampling, "1 parent errors"},
        Case{"ratio of the configuration",
             {{"OTEL_TRACES_SAMPLER", "always_on"}},
             [](TelemetryConfig& config) {
               config.sampling_ratio = 0.5;
               config.keep_errors = false;
               config.keep_slower_than = kSecond;
             },
             sampling,
             "0.5 parent slow"},
        Case{"sampler of the configuration, ratio of the environment",
             {{"OTEL_TRACES_SAMPLER_ARG", "0.125"}},
             [](TelemetryConfig& config) { config.sampler = "traceidratio"; },
             sampling,
             "0.125 alone errors"},
        Case{"propagators, default", {}, no_key, propagation, "trace"},
        Case{"propagators", {{"OTEL_PROPAGATORS", "tracecontext, baggage,b3"}}, no_key, propagation, "trace+baggage"},
        Case{"no propagators", {{"OTEL_PROPAGATORS", "none"}}, no_key, propagation, ""},
        Case{"baggage of the configuration",
             {{"OTEL_PROPAGATORS", "tracecontext,baggage"}},
             [](TelemetryConfig& config) { config.propagate_baggage = false; },
             propagation,
             "trace"},
        Case{"no log level of its own", {}, no_key, log_level, "as all"},
        Case{"wrong log level", {{"OTEL_LOG_LEVEL", "loud"}}, no_key, log_level, "as all"},
        Case{"log level", {{"OTEL_LOG_LEVEL", "WARN"}}, no_key, log_level, "2"},
        Case{"no logs of its own", {{"OTEL_LOG_LEVEL", "none"}}, no_key, log_level, "none"}));

INSTANTIATE_TEST_SUITE_P(
    Resource, EnvironmentMatrix,
    ::testing::Values(Case{"default", {}, no_key, resource, "tuft:"},
                      Case{"FastDeploy's names",
                           {{"FD_SERVICE_NAME", "FD"}, {"FD_HOST_NAME", "h"}},
                           no_key,
                           resource,
                           "FD:host.name=h;"},
                      Case{"the attribute over FastDeploy's",
                           {{"FD_SERVICE_NAME", "FD"}, {"OTEL_RESOURCE_ATTRIBUTES", "service.name=weak,a=1%2C2"}},
                           no_key,
                           resource,
                           "weak:a=1,2;"},
                      Case{"the variable over the attribute",
                           {{"OTEL_SERVICE_NAME", "name"}, {"OTEL_RESOURCE_ATTRIBUTES", "service.name=weak"}},
                           no_key,
                           resource,
                           "name:"},
                      Case{"the configuration over the variable",
                           {{"OTEL_SERVICE_NAME", "name"}, {"OTEL_RESOURCE_ATTRIBUTES", "team=green,host.name=x"}},
                           [](TelemetryConfig& config) {
                             config.service_name = "mine";
                             config.resource_attributes = {{"team", "blue"}};
                           },
                           resource,
                           "mine:host.name=x;team=blue;"},
                      Case{"the default name, written out, over the variable",
                           {{"OTEL_SERVICE_NAME", "name"}},
                           [](TelemetryConfig& config) { config.service_name = "tuft"; },
                           resource,
                           "tuft:"},
                      Case{"the configuration's attribute over its name",
                           {},
                           [](TelemetryConfig& config) {
                             config.service_name = "mine";
                             config.resource_attributes = {{"service.name", "strong"}};
                           },
                           resource,
                           "strong:"}));

}  // namespace
}  // namespace tuft::telemetry::internal
