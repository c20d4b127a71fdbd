#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "config/tests/model_directory.h"

namespace tuft::config {
namespace {

using telemetry::Compression;
using telemetry::Protocol;
using telemetry::TelemetryConfig;
using telemetry::Temporality;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Loaded> load_section(const std::string& telemetry) {
  return parse_config(one_model() + kUsers + "telemetry:\n" + telemetry, "tuft.yaml");
}

TelemetryConfig read_section(const std::string& telemetry) {
  Result<Loaded> loaded = load_section(telemetry);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? loaded->config.telemetry : TelemetryConfig{};
}

TEST(TelemetrySection, ReadsEveryKeyOfTheSection) {
  const TelemetryConfig config = read_section(R"(
  enabled: true
  service_name: lab
  otlp_endpoint: http://collector:4318
  resource_attributes: {team: blue}
  protocol: http/protobuf
  headers: {X-Team: blue, Authorization: "Bearer a=b"}
  compression: gzip
  tls: {ca_file: /ca.pem, certificate_file: /c.pem, key_file: /k.pem}
  file_path: /var/log/otlp.jsonl
  export_timeout_seconds: 2.5
  traces: {enabled: true, protocol: grpc, endpoint: "https://traces:4317"}
  metrics: {enabled: false}
  logs: {protocol: file, endpoint: /var/log/logs.jsonl, level: warning}
  sampler: parentbased_traceidratio
  sampling_ratio: 0.25
  keep_errors: false
  keep_slower_than_seconds: 3
  metric_interval_seconds: 15
  temporality: lowmemory
  exemplar_filter: always_on
  histogram_aggregation: base2_exponential_bucket_histogram
  batch_delay_seconds: 0.5
  batch_max: 100
  queue_max: 1000
  shutdown_budget_seconds: 2
  trace_archive_bytes: 0
  propagate_baggage: true
  metrics_endpoint: false
  metrics_token: plainsecret
  tenant_label: true
)");
  EXPECT_TRUE(config.enabled);
  EXPECT_EQ(config.otlp_endpoint, "http://collector:4318");
  EXPECT_EQ(config.protocol, Protocol::kHttpProtobuf);
  EXPECT_EQ(config.headers, (std::map<std::string, std::string>{{"x-team", "blue"}, {"authorization", "Bearer a=b"}}));
  EXPECT_EQ(config.compression, Compression::kGzip);
  EXPECT_EQ(config.tls.ca_file, "/ca.pem");
  EXPECT_EQ(config.tls.certificate_file, "/c.pem");
  EXPECT_EQ(config.tls.key_file, "/k.pem");
  EXPECT_EQ(config.file_path, "/var/log/otlp.jsonl");
  EXPECT_EQ(config.export_timeout, 2500 * kMillisecond);
  EXPECT_EQ(config.traces.enabled, true);
  EXPECT_EQ(config.traces.protocol, Protocol::kGrpc);
  EXPECT_EQ(config.traces.endpoint, "https://traces:4317");
  EXPECT_EQ(config.metrics.enabled, false);
  EXPECT_FALSE(config.metrics.protocol);
  EXPECT_EQ(config.logs.protocol, Protocol::kFile);
  EXPECT_EQ(config.sampler, "parentbased_traceidratio");
  EXPECT_EQ(config.sampling_ratio, 0.25);
  EXPECT_EQ(config.keep_errors, false);
  EXPECT_EQ(config.keep_slower_than, 3 * kSecond);
  EXPECT_EQ(config.metric_interval, 15 * kSecond);
  EXPECT_EQ(config.temporality, Temporality::kLowMemory);
  EXPECT_EQ(config.exemplar_filter, telemetry::ExemplarFilter::kAlwaysOn);
  EXPECT_EQ(config.histogram_aggregation, telemetry::HistogramAggregation::kExponential);
  EXPECT_EQ(config.batch_delay, 500 * kMillisecond);
  EXPECT_EQ(config.batch_max, 100);
  EXPECT_EQ(config.queue_max, 1000);
  EXPECT_EQ(config.shutdown_budget, 2 * kSecond);
  EXPECT_EQ(config.trace_archive_bytes, 0);
  EXPECT_EQ(config.propagate_baggage, true);
  EXPECT_FALSE(config.metrics_endpoint);
  EXPECT_EQ(config.metrics_token, "plainsecret");
  EXPECT_TRUE(config.tenant_label);
}

TEST(TelemetrySection, AbsentKeysAreLeftToTheEnvironment) {
  const TelemetryConfig config = read_section("  enabled: true\n  otlp_endpoint: \"\"\n");
  EXPECT_FALSE(config.otlp_endpoint || config.protocol || config.sampler || config.sampling_ratio ||
               config.metric_interval || config.keep_errors || config.traces.enabled || config.shutdown_budget);
  EXPECT_TRUE(config.headers.empty());
  EXPECT_TRUE(config.metrics_endpoint);
  EXPECT_FALSE(config.tenant_label);
}

struct SectionMistake {
  const char* lines;
  const char* message;
};

class TelemetryMistake : public ::testing::TestWithParam<SectionMistake> {};

TEST_P(TelemetryMistake, StopsTheStartAndNamesTheKey) {
  const Result<Loaded> loaded = load_section(GetParam().lines);
  ASSERT_FALSE(loaded.ok()) << GetParam().lines;
  EXPECT_THAT(loaded.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(loaded.error().message, Not(HasSubstr("plainsecret")));
}

INSTANTIATE_TEST_SUITE_P(
    Table, TelemetryMistake,
    ::testing::Values(
        SectionMistake{"  protocl: grpc\n", "did you mean 'protocol'?"},
        SectionMistake{"  protocol: http\n",
                       "telemetry.protocol: must be one of grpc, http/protobuf, console, file, none"},
        SectionMistake{"  protocol: file\n", "telemetry.file_path: is missing"},
        SectionMistake{"  logs: {protocol: file}\n", "telemetry.file_path: is missing"},
        SectionMistake{"  traces: {endpont: x}\n",
                       "unknown key 'endpont' in telemetry.traces; did you mean 'endpoint'?"},
        SectionMistake{"  metrics: {protocol: prometheus}\n", "telemetry.metrics.protocol: must be one of"},
        SectionMistake{"  logs: 3\n", "telemetry.logs: must be a mapping"},
        SectionMistake{"  headers: [plainsecret]\n", "telemetry.headers: must be a mapping"},
        SectionMistake{"  headers: {\"a b\": plainsecret}\n",
                       "telemetry.headers (entry 1): is no name of an HTTP header"},
        SectionMistake{"  headers: {a: \"plainsecret\\r\\nc\"}\n",
                       "telemetry.headers (entry 1): the value must be a text"},
        SectionMistake{"  headers: {a: plainsecret}\n  sampler: plainsecret\n", "telemetry.sampler: must be one of"},
        SectionMistake{"  compression: zstd\n", "telemetry.compression: must be one of none, gzip"},
        SectionMistake{"  tls: {ca: x}\n", "unknown key 'ca' in telemetry.tls"},
        SectionMistake{"  tls: {key_file: x}\n", "telemetry.tls.certificate_file: is missing"},
        SectionMistake{"  tls: {certificate_file: x}\n", "telemetry.tls.key_file: is missing"},
        SectionMistake{"  export_timeout_seconds: 0\n", "telemetry.export_timeout_seconds: must be at least 0.001 s"},
        SectionMistake{"  export_timeout_seconds: soon\n", "telemetry.export_timeout_seconds: must be a number"},
        SectionMistake{"  metric_interval_seconds: 100000\n",
                       "telemetry.metric_interval_seconds: must be at most a day"},
        SectionMistake{"  keep_slower_than_seconds: -1\n",
                       "telemetry.keep_slower_than_seconds: must be a time in seconds"},
        SectionMistake{"  sampler: jaeger_remote\n", "telemetry.sampler: must be one of always_on"},
        SectionMistake{"  sampling_ratio: 1.5\n", "telemetry.sampling_ratio: must be between 0 and 1"},
        SectionMistake{"  temporality: sometimes\n", "telemetry.temporality: must be one of"},
        SectionMistake{"  batch_max: 0\n", "telemetry.batch_max: must be at least 1"},
        SectionMistake{"  batch_max: 20\n  queue_max: 10\n", "telemetry.batch_max: must not be above queue_max"},
        SectionMistake{"  metrics_token: \"plainsecret with blanks\"\n", "telemetry.metrics_token: must be a text"},
        SectionMistake{"  logs: {level: loud}\n", "telemetry.logs.level: must be one of"},
        SectionMistake{"  traces: {level: debug}\n", "unknown key 'level' in telemetry.traces"},
        SectionMistake{"  keep_errors: often\n", "telemetry.keep_errors: must be true or false"}));

TEST(TelemetrySection, OnlyWhatIsWrittenIsKept) {
  EXPECT_FALSE(read_section("  enabled: true\n").service_name);
  EXPECT_FALSE(read_section("  enabled: true\n").log_level);
  EXPECT_EQ(read_section("  service_name: tuft\n").service_name, "tuft")
      << "written out, it wins over OTEL_SERVICE_NAME";
  EXPECT_EQ(read_section("  logs: {level: debug}\n").log_level, telemetry::Severity::kDebug);
}

TEST(TelemetrySection, RatioWithoutARatioSamplerIsAWarning) {
  const Result<Loaded> loaded = load_section("  sampler: always_on\n  sampling_ratio: 0.5\n");
  ASSERT_TRUE(loaded.ok());
  EXPECT_THAT(loaded->warnings, ::testing::ElementsAre(HasSubstr("telemetry.sampling_ratio: has no effect")));
}

TEST(TraceEnable, VariableEnablesTracesOnlyIfTheFileIsSilent) {
  const ScopedVariable variable("TRACES_ENABLE", "true");
  const TelemetryConfig silent = read_section("  service_name: x\n");
  EXPECT_TRUE(silent.enabled);
  EXPECT_EQ(silent.traces.enabled, true);
  EXPECT_EQ(silent.metrics.enabled, false);
  EXPECT_EQ(silent.logs.enabled, false);
  EXPECT_FALSE(read_section("  enabled: false\n").enabled) << "the file is stronger";
  EXPECT_FALSE(read_section("  enabled: true\n").metrics.enabled.has_value()) << "the file asked for all signals";
}

TEST(TraceEnable, FlagsOverrideTheFile) {
  const TempDir directory;
  const ScopedVariable home("TUFT_HOME", directory.path().c_str());
  const auto path = directory / "tuft.yaml";
  write_text(path, one_model() + kUsers + "telemetry: {enabled: false, traces: {endpoint: \"http://a:1\"}}\n");
  Overrides overrides;
  overrides.config_path = path.string();
  EXPECT_FALSE(load_config(overrides)->config.telemetry.enabled);
  overrides.trace_enable = true;
  overrides.otlp_traces_endpoint = "http://b:2";
  const TelemetryConfig config = load_config(overrides)->config.telemetry;
  EXPECT_TRUE(config.enabled);
  EXPECT_EQ(config.traces.endpoint, "http://b:2");
  EXPECT_EQ(config.logs.enabled, false);
}

}  // namespace
}  // namespace tuft::config
