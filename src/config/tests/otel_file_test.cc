// Tests OpenTelemetry's declarative configuration: each supported key and each error.
#include "config/otel_file.h"

#include <functional>
#include <optional>
#include <string>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/tests/otel_text.h"
#include "config/tests/variables.h"
#include "telemetry/record/recorder.h"

namespace tuft::config {
namespace {

using telemetry::Compression;
using telemetry::ExemplarFilter;
using telemetry::HistogramAggregation;
using telemetry::Protocol;
using telemetry::TelemetryConfig;
using telemetry::Temporality;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

OtelFile read(const std::string& yaml) {
  Result<OtelFile> file = parse_otel_file(yaml, "otel.yaml");
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message) << "\n" << yaml;
  return file.ok() ? *std::move(file) : OtelFile{};
}

const std::string kSpanExporter = R"(file_format: "1.1"
tracer_provider:
  processors:
    - batch:
        exporter:
          )";
const std::string kMetricExporter = R"(file_format: "1.1"
meter_provider:
  readers:
    - periodic:
        exporter:
          )";

struct Supported {
  const char* what;
  std::string yaml;
  std::function<std::string(const TelemetryConfig&)> value;
  std::string expected;
};

class OtelFileKey : public ::testing::TestWithParam<Supported> {};

std::string show(const std::optional<bool>& value) {
  return value ? (*value ? "true" : "false") : "absent";
}
template <typename T>
std::string show(const std::optional<T>& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value.value_or("absent");
  } else {
    return value ? std::to_string(static_cast<double>(*value)) : "absent";
  }
}
std::string batches(const telemetry::SignalConfig& signal) {
  return std::to_string(signal.batch_delay.value_or(0) / kMillisecond) + " " +
         std::to_string(signal.batch_max.value_or(0)) + " " + std::to_string(signal.queue_max.value_or(0)) + " " +
         std::to_string(signal.export_timeout.value_or(0) / kMillisecond);
}
std::string way(const telemetry::SignalConfig& signal) {
  const std::string on = show(signal.enabled);
  if (!signal.protocol) return on;
  return on + " " + std::string(telemetry::kProtocolWords[static_cast<size_t>(*signal.protocol)]) + " " +
         show(signal.endpoint);
}
std::string ways(const TelemetryConfig& config) {
  return way(config.traces) + ", " + way(config.metrics) + ", " + way(config.logs);
}
std::string headers(const TelemetryConfig& config) {
  std::string out;
  for (const auto& [name, value] : config.traces.headers) out += name + "=" + value + ";";
  return out;
}
std::string attributes(const TelemetryConfig& config) {
  std::string out;
  for (const auto& [name, value] : config.resource_attributes) out += name + "=" + value + ";";
  return out;
}
std::string sampling(const TelemetryConfig& config) {
  return show(config.sampler) + " " + (config.sampling_ratio ? std::to_string(*config.sampling_ratio) : "");
}
std::string propagation(const TelemetryConfig& config) {
  return show(config.propagate_trace_context) + " " + show(config.propagate_baggage);
}
std::string sampled_with(const std::string& sampler) {
  return std::string(kTraces) + "  sampler: " + sampler + "\n";
}

TEST_P(OtelFileKey, ReadThenInTheConfiguration) {
  const Supported& key = GetParam();
  const OtelFile file = read(key.yaml);
  EXPECT_EQ(key.value(file.config), key.expected) << key.what;
  EXPECT_TRUE(file.config.environment_ignored);
  EXPECT_THAT(file.warnings, ElementsAre());
}

INSTANTIATE_TEST_SUITE_P(
    Table, OtelFileKey,
    ::testing::Values(
        Supported{"nothing", "file_format: \"1.0\"\n", ways, "false, false, false"},
        Supported{"disabled", "file_format: \"1.1\"\ndisabled: true\n",
                  [](const TelemetryConfig& config) { return std::string(config.enabled ? "on" : "off"); }, "off"},
        Supported{"not disabled", "file_format: \"1.1\"\ndisabled:\n",
                  [](const TelemetryConfig& config) { return std::string(config.enabled ? "on" : "off"); }, "on"},
        Supported{"log_level", "file_format: \"1.1\"\nlog_level: warn3\n",
                  [](const TelemetryConfig& config) { return show(config.own_log_level); }, "warn"},
        Supported{"defaults of the exporter over HTTP", kTraces, ways,
                  "true http/protobuf http://localhost:4318/v1/traces, false, false"},
        Supported{"defaults of the batch processor", kTraces,
                  [](const TelemetryConfig& config) { return batches(config.traces); }, "5000 512 2048 10000"},
        Supported{"batch processor",
                  R"(file_format: "1.1"
logger_provider:
  processors:
    - batch:
        schedule_delay: 0
        export_timeout: 3000
        max_queue_size: 0x10
        max_export_batch_size: 8
        exporter: {otlp_grpc: {timeout: 7000}}
)",
                  [](const TelemetryConfig& config) { return batches(config.logs); }, "1 8 16 3000"},
        Supported{"no time limit, which is an hour",
                  R"(file_format: "1.1"
logger_provider:
  processors: [{batch: {export_timeout: 0, exporter: {otlp_grpc: {timeout: 0}}}}]
)",
                  [](const TelemetryConfig& config) { return batches(config.logs); }, "1000 512 2048 3600000"},
        Supported{"exporter over gRPC", kSpanExporter + "otlp_grpc: {endpoint: \"https://c:4317\"}\n", ways,
                  "true grpc https://c:4317, false, false"},
        Supported{"gRPC without a scheme", kSpanExporter + "otlp_grpc: {endpoint: \"c:4317\"}\n", ways,
                  "true grpc c:4317, false, false"},
        Supported{"insecure gRPC", kSpanExporter + "otlp_grpc: {endpoint: \"c:4317\", tls: {insecure: true}}\n", ways,
                  "true grpc http://c:4317, false, false"},
        Supported{"file", kSpanExporter + "otlp_file/development: {output_stream: file:///t.jsonl}\n", ways,
                  "true file /t.jsonl, false, false"},
        Supported{"console", kSpanExporter + "console:\n", ways, "true console absent, false, false"},
        Supported{"tls", kSpanExporter + "otlp_http: {tls: {ca_file: /a, cert_file: /b, key_file: /c}}\n",
                  [](const TelemetryConfig& config) {
                    const telemetry::TlsConfig& tls = config.traces.tls;
                    return show(tls.ca_file) + show(tls.certificate_file) + show(tls.key_file);
                  },
                  "/a/b/c"},
        Supported{"headers", kSpanExporter + R"(otlp_http:
            headers_list: "A=1,b=%20x"
            headers: [{name: a, value: "2"}, {name: C}]
)",
                  headers, "a=2;b= x;"},
        Supported{"compression",
                  kSpanExporter + "otlp_http: {compression: gzip, encoding: protobuf, max_request_size: 67108864}\n",
                  [](const TelemetryConfig& config) {
                    return std::string(config.traces.compression == Compression::kGzip ? "gzip" : "no");
                  },
                  "gzip"},
        Supported{"periodic reader",
                  R"(file_format: "1.1"
meter_provider:
  readers: [{periodic: {interval: 15000, timeout: 2000, exporter: {console: }}}]
)",
                  [](const TelemetryConfig& config) { return show(config.metric_interval) + way(config.metrics); },
                  "15000000000.000000true console absent"},
        Supported{"temporality and aggregation",
                  kMetricExporter + "otlp_http: {temporality_preference: low_memory, default_histogram_aggregation: "
                                    "base2_exponential_bucket_histogram}\n",
                  [](const TelemetryConfig& config) {
                    return std::string(config.temporality == Temporality::kLowMemory ? "low" : "") +
                           (config.histogram_aggregation == HistogramAggregation::kExponential ? " exponential" : "");
                  },
                  "low exponential"},
        Supported{"exemplar_filter", kMetricExporter + "otlp_http:\n  exemplar_filter: always_off\n",
                  [](const TelemetryConfig& config) {
                    return std::string(config.exemplar_filter == ExemplarFilter::kAlwaysOff ? "off" : "");
                  },
                  "off"},
        Supported{"default sampler", kTraces, sampling, "parentbased_always_on "},
        Supported{"always_off", sampled_with("{always_off: }"), sampling, "always_off "},
        Supported{"ratio", sampled_with("{trace_id_ratio_based: {ratio: 0.25}}"), sampling, "traceidratio 0.250000"},
        Supported{"ratio of roots", sampled_with("{parent_based: {root: {trace_id_ratio_based: }}}"), sampling,
                  "parentbased_traceidratio 1.000000"},
        Supported{"parents",
                  sampled_with("{parent_based: {remote_parent_sampled: {always_on: }, local_parent_not_sampled: "
                               "{always_off: }}}"),
                  sampling, "parentbased_always_on "},
        Supported{"id generator", std::string(kTraces) + "  id_generator: {random: }\n", sampling,
                  "parentbased_always_on "},
        Supported{"no propagator", "file_format: \"1.1\"\n", propagation, "false false"},
        Supported{"propagators", "file_format: \"1.1\"\npropagator: {composite: [{tracecontext: }, {baggage: }]}\n",
                  propagation, "true true"},
        Supported{"list of propagators", "file_format: \"1.1\"\npropagator: {composite_list: \"tracecontext, none\"}\n",
                  propagation, "true false"},
        Supported{"resource",
                  R"(file_format: "1.1"
resource:
  attributes_list: "team=red,x=a%2Cb"
  attributes: [{name: service.name, value: lab}, {name: team, value: blue, type: string}, {name: none, value: }]
  detection/development: {detectors: [{service: }, {host: }, {process: }]}
)",
                  attributes, "service.name=lab;team=blue;x=a,b;"},
        Supported{"what is null",
                  "file_format: \"1.1\"\ninstrumentation/development: {general: {stability_opt_in_list: }}\n"
                  "resource: {schema_url: }\n",
                  ways, "false, false, false"}));

struct FileMistake {
  std::string yaml;
  std::string message;
};

class OtelFileMistake : public ::testing::TestWithParam<FileMistake> {};

TEST_P(OtelFileMistake, ReadThenTheErrorNamesThePath) {
  const Result<OtelFile> file = parse_otel_file(GetParam().yaml, "otel.yaml");
  ASSERT_FALSE(file.ok()) << GetParam().yaml;
  EXPECT_THAT(file.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(file.error().message, HasSubstr("otel.yaml:"));
  EXPECT_THAT(file.error().message, Not(HasSubstr("secret")));
}

INSTANTIATE_TEST_SUITE_P(
    Table, OtelFileMistake,
    ::testing::Values(
        FileMistake{"resource: {}\n", "file_format: is missing"},
        FileMistake{"file_format: \"0.4\"\n", "file_format: must be \"1.0\" or \"1.1\""},
        FileMistake{"file_format: \"1.0-rc.2\"\n", "file_format: must be"}, FileMistake{"[]", "must be a mapping"},
        FileMistake{"file_format: \"1.1\"\ndisabled: maybe\n", "disabled: must be true or false"},
        FileMistake{"file_format: \"1.1\"\nlog_level: loud\n", "log_level: must be trace"},
        FileMistake{"file_format: \"1.1\"\nattribute_limits: {attribute_count_limit: 31}\n",
                    "attribute_limits.attribute_count_limit: is not supported below 32"},
        FileMistake{"file_format: \"1.1\"\nattribute_limits: {event_count_limit: 128}\n",
                    "unknown key 'event_count_limit'"},
        FileMistake{"file_format: \"1.1\"\nresource: {schema_url: \"https://x\"}\n",
                    "resource.schema_url: is not supported"},
        FileMistake{"file_format: \"1.1\"\nresource: {attributes: [{name: a, value: 1, type: int}]}\n",
                    "resource.attributes[0].type: is not supported"},
        FileMistake{"file_format: \"1.1\"\nresource: {attributes_list: \"a\"}\n", "resource.attributes_list: must be"},
        FileMistake{"file_format: \"1.1\"\nresource: {detection/development: {detectors: [{container: }]}}\n",
                    "resource.detection/development.detectors[0].container: is not supported"},
        FileMistake{"file_format: \"1.1\"\nresource: {detection/development: {attributes: {included: [a]}}}\n",
                    "resource.detection/development.attributes: is not supported"},
        FileMistake{"file_format: \"1.1\"\npropagator: {composite: [{b3: }]}\n",
                    "propagator.composite[0].b3: is not supported"},
        FileMistake{"file_format: \"1.1\"\nresource: {detection/development: {detectors: [{host: {a: 1}}]}}\n",
                    "resource.detection/development.detectors[0].host: has no keys"},
        FileMistake{"file_format: \"1.1\"\npropagator: {composite: [{tracecontext: {a: 1}}]}\n",
                    "propagator.composite[0].tracecontext: has no keys"},
        FileMistake{sampled_with("{always_on: {ratio: 1}}"), "tracer_provider.sampler.always_on: has no keys"},
        FileMistake{sampled_with("{parent_based: {remote_parent_sampled: {always_on: [1]}}}"),
                    "tracer_provider.sampler.parent_based.remote_parent_sampled.always_on: has no keys"},
        FileMistake{std::string(kTraces) + "  id_generator: {random: {a: 1}}\n",
                    "tracer_provider.id_generator.random: has no keys"},
        FileMistake{"file_format: \"1.1\"\npropagator: {composite_list: \"tracecontext,xray\"}\n",
                    "propagator.composite_list: is not supported"},
        FileMistake{"file_format: \"1.1\"\ntracer_provider: {}\n", "tracer_provider.processors: must be a list"},
        FileMistake{"file_format: \"1.1\"\ntracer_provider: {processors: [{simple: {exporter: {console: }}}]}\n",
                    "tracer_provider.processors[0].simple: is not supported; use batch"},
        FileMistake{"file_format: \"1.1\"\ntracer_provider: {processors: [{batch: {}}]}\n",
                    "tracer_provider.processors[0].batch.exporter: is missing"},
        FileMistake{
            "file_format: \"1.1\"\ntracer_provider: {processors: [{batch: {exporter: {console: }}}, {batch: {}}]}\n",
            "tracer_provider.processors[1]: is not supported"},
        FileMistake{kSpanExporter + "zipkin: {endpoint: x}\n",
                    "tracer_provider.processors[0].batch.exporter.zipkin: is not supported"},
        FileMistake{kSpanExporter + "otlp_http: {encoding: json}\n", "otlp_http.encoding: is not supported"},
        FileMistake{kSpanExporter + "otlp_http: {compression: zstd}\n",
                    "otlp_http.compression: must be one of none, gzip"},
        FileMistake{kSpanExporter + "otlp_http: {max_request_size: 1000}\n",
                    "otlp_http.max_request_size: is not supported"},
        FileMistake{kSpanExporter + "otlp_http: {max_response_size: 1000}\n", "otlp_http.max_response_size: is not"},
        FileMistake{kSpanExporter + "otlp_http: {tls: {cert_file: /x}}\n", "otlp_http.tls.key_file: is missing"},
        FileMistake{kSpanExporter + "otlp_http: {tls: {insecure: true}}\n", "unknown key 'insecure'"},
        FileMistake{kSpanExporter + "otlp_http: {headers: [{name: \"\", value: secret}]}\n",
                    "otlp_http.headers[0]: must"},
        FileMistake{kSpanExporter + "otlp_http: {headers_list: secret}\n", "otlp_http.headers_list: must be"},
        FileMistake{kSpanExporter + "otlp_http: {endpiont: x}\n", "did you mean 'endpoint'?"},
        FileMistake{kSpanExporter + "otlp_file/development: {output_stream: stdout}\n",
                    "output_stream: must be file:///path"},
        FileMistake{kSpanExporter + "{otlp_http: , console: }\n", "exporter: must be a mapping with one key"},
        FileMistake{kSpanExporter + "otlp_http: {temporality_preference: delta}\n",
                    "unknown key 'temporality_preference'"},
        FileMistake{sampled_with("{jaeger_remote/development: {endpoint: x}}"),
                    "tracer_provider.sampler.jaeger_remote/development: is not supported; always_on"},
        FileMistake{sampled_with("{parent_based: {root: {composite/development: }}}"),
                    "tracer_provider.sampler.parent_based.root.composite/development: is not supported"},
        FileMistake{sampled_with("{parent_based: {remote_parent_not_sampled: {always_on: }}}"),
                    "tracer_provider.sampler.parent_based.remote_parent_not_sampled.always_on: is not supported"},
        FileMistake{sampled_with("{trace_id_ratio_based: {ratio: 2}}"),
                    "tracer_provider.sampler.trace_id_ratio_based.ratio: must be between 0 and 1"},
        FileMistake{std::string(kTraces) + "  id_generator: {xray: }\n",
                    "tracer_provider.id_generator.xray: is not supported"},
        FileMistake{std::string(kTraces) + "  tracer_configurator/development: {default_config: {disabled: true}}\n",
                    "tracer_provider.tracer_configurator/development: is not supported"},
        FileMistake{
            "file_format: \"1.1\"\nmeter_provider: {readers: [{pull: {exporter: {prometheus/development: }}}]}\n",
            "meter_provider.readers[0].pull: is not supported; Prometheus reads GET /metrics"},
        FileMistake{kMetricExporter + "otlp_http:\n  views: [{selector: {instrument_name: x}}]\n",
                    "meter_provider.views: is not supported"},
        FileMistake{kMetricExporter + "otlp_http:\n  exemplar_filter: sometimes\n",
                    "meter_provider.exemplar_filter: must be one of"},
        FileMistake{kMetricExporter + "otlp_http:\n        cardinality_limits: {default: 10}\n",
                    "meter_provider.readers[0].periodic.cardinality_limits: is not supported"},
        FileMistake{kMetricExporter + "otlp_http:\n        producers: [{opencensus: }]\n        interval: 0\n",
                    "meter_provider.readers[0].periodic.interval: must be at least 1"},
        FileMistake{
            "file_format: \"1.1\"\nlogger_provider: {processors: [{batch: {schedule_delay: soon, exporter: {console: "
            "}}}]}\n",
            "logger_provider.processors[0].batch.schedule_delay: must be a whole number"},
        FileMistake{"file_format: \"1.1\"\ninstrumentation/development: {general: {stability_opt_in_list: http}}\n",
                    "instrumentation/development: is not supported"},
        FileMistake{"file_format: \"${1}\"\n", "a ${...} must be ${NAME}"}));

TEST(OtelFile, SeveralMistakesThenAllInOneError) {
  const Result<OtelFile> file = parse_otel_file(
      "file_format: \"1.1\"\nresource: {schema_url: x}\npropagator: {composite: [{b3: }]}\n", "otel.yaml");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("otel.yaml:2: resource.schema_url"));
  EXPECT_THAT(file.error().message, HasSubstr("otel.yaml:3: propagator.composite[0].b3"));
}

TEST(OtelFile, OursAreTheLimitsOfTheRecorderThenAccepted) {
  using namespace telemetry::internal;
  const auto limits = [](size_t attributes, size_t length, size_t events, size_t links, size_t event_attributes) {
    return parse_otel_file(std::string(kTraces) + "  limits: {attribute_count_limit: " + std::to_string(attributes) +
                               ", attribute_value_length_limit: " + std::to_string(length) + ", event_count_limit: " +
                               std::to_string(events) + ", link_count_limit: " + std::to_string(links) +
                               ", event_attribute_count_limit: " + std::to_string(event_attributes) +
                               ", link_attribute_count_limit: 0}\n",
                           "otel.yaml")
        .ok();
  };
  const size_t links = kMoreLinksMax + 1;
  EXPECT_TRUE(limits(kAttributesMax, kStringBytesMax, kEventsMax, links, kEventAttributesMax));
  EXPECT_FALSE(limits(kAttributesMax - 1, kStringBytesMax, kEventsMax, links, kEventAttributesMax));
  EXPECT_FALSE(limits(kAttributesMax, kStringBytesMax - 1, kEventsMax, links, kEventAttributesMax));
  EXPECT_FALSE(limits(kAttributesMax, kStringBytesMax, kEventsMax - 1, links, kEventAttributesMax));
  EXPECT_FALSE(limits(kAttributesMax, kStringBytesMax, kEventsMax, links - 1, kEventAttributesMax));
  EXPECT_FALSE(limits(kAttributesMax, kStringBytesMax, kEventsMax, links, kEventAttributesMax - 1));
}

TEST(OtelFile, WhatTheSchemaAllowsThenAWarning) {
  const OtelFile file = read("file_format: \"1.3\"\nmine: {a: 1}\ndistribution: {other: {b: 2}}\n");
  EXPECT_THAT(file.warnings,
              ElementsAre(HasSubstr("file_format: is newer than 1.1"), HasSubstr("mine: has no effect")));
}

TEST(OtelFile, AliasesWithoutEndThenRefused) {
  std::string yaml = "file_format: \"1.1\"\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    yaml += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 9; ++j) yaml.append(", ").append(before);
    yaml += "]\n";
  }
  const Result<OtelFile> file = parse_otel_file(yaml, "otel.yaml");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("grows too large"));
}

TEST(OtelFile, SecretOfTheEnvironmentThenInNoMessage) {
  const WithVariables variables(Variables{{"THE_RATIO", "secret"}});
  const Result<OtelFile> file =
      parse_otel_file(sampled_with("{trace_id_ratio_based: {ratio: \"${THE_RATIO}\"}}"), "otel.yaml");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, Not(HasSubstr("secret")));
}

// OpenTelemetry's own examples.
TEST(OtelFile, StartingPointsOfTheSpecificationThenAccepted) {
  const OtelFile file = read(R"(file_format: "1.1"
disabled: ${OTEL_SDK_DISABLED:-false}
log_level: info
resource:
  attributes: [{name: service.name, value: "${OTEL_SERVICE_NAME:-unknown_service}"}]
  attributes_list: ${OTEL_RESOURCE_ATTRIBUTES}
attribute_limits:
  attribute_value_length_limit: ${NO_LIMIT}
  attribute_value_depth_limit: 64
  attribute_count_limit: 128
propagator: {composite_list: "${OTEL_PROPAGATORS:-tracecontext,baggage}"}
tracer_provider:
  processors:
    - batch:
        schedule_delay: ${DELAY:-5000}
        exporter:
          otlp_http:
            endpoint: ${ENDPOINT:-http://localhost:4318}/v1/traces
            compression: ${COMPRESSION:-gzip}
            timeout: ${TIMEOUT:-10000}
            headers_list: ${HEADERS}
            tls:
              ca_file: ${CA}
              key_file: ${KEY}
              cert_file: ${CERT}
  limits:
    attribute_value_length_limit: ${NO_LIMIT}
    event_count_limit: 128
    link_count_limit: 128
    event_attribute_count_limit: 128
    link_attribute_count_limit: 128
  sampler:
    parent_based:
      root:
        always_on:
      remote_parent_sampled:
        always_on:
      remote_parent_not_sampled:
        always_off:
instrumentation/development:
  general:
    stability_opt_in_list: ${OPT_IN}
)");
  EXPECT_EQ(file.config.traces.endpoint, "http://localhost:4318/v1/traces");
  EXPECT_EQ(file.config.resource_attributes.at("service.name"), "unknown_service");
  EXPECT_FALSE(file.config.traces.tls.ca_file);
  EXPECT_EQ(propagation(file.config), "true true");
}

}  // namespace
}  // namespace tuft::config
