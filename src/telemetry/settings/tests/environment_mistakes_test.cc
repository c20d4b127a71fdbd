// Checks that a wrong value that would send data elsewhere stops the start.
#include <gtest/gtest.h>

#include "telemetry/settings/settings.h"
#include "telemetry/settings/tests/clean_environment.h"

namespace tuft::telemetry::internal {
namespace {

struct Mistake {
  Variables variables;
  Configure configure;
  const char* named;
};

class EnvironmentMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(EnvironmentMistake, ChangesWhereDataGoesThenStopsTheStart) {
  const CleanEnvironment environment(GetParam().variables);
  TelemetryConfig config{.enabled = true};
  GetParam().configure(config);
  const auto settings = read_settings(config);
  ASSERT_FALSE(settings.ok()) << GetParam().named;
  EXPECT_NE(settings.error().message.find(GetParam().named), std::string::npos) << settings.error().message;
  EXPECT_EQ(settings.error().message.find("secret"), std::string::npos) << settings.error().message;
  config.enabled = false;
  EXPECT_TRUE(read_settings(config).ok()) << "telemetry that is off cannot stop a server";
}

INSTANTIATE_TEST_SUITE_P(
    Table, EnvironmentMistake,
    ::testing::Values(
        Mistake{{{"OTEL_TRACES_EXPORTER", "zipkin"}}, no_key, "OTEL_TRACES_EXPORTER"},
        Mistake{{{"OTEL_LOGS_EXPORTER", "prometheus"}}, no_key, "OTEL_LOGS_EXPORTER"},
        Mistake{{{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}}, no_key, "OTEL_EXPORTER_OTLP_PROTOCOL"},
        Mistake{{{"TRACES_EXPORTER", "zipkin"}}, no_key, "TRACES_EXPORTER"},
        Mistake{{{"OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://x"}}, no_key, "OTEL_EXPORTER_OTLP_ENDPOINT"},
        Mistake{{{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:secret@x:1"}}, no_key, "OTEL_EXPORTER_OTLP_ENDPOINT"},
        Mistake{
            {{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "x:4318/v1/traces"}}, no_key, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
        Mistake{{{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x:4318/v1/traces"},
                 {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}},
                no_key,
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
        Mistake{{{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x:4318/v1/traces"}},
                [](TelemetryConfig& config) { config.traces.protocol = Protocol::kGrpc; },
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
        Mistake{{{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", "x:4318"}},
                no_key,
                "OTEL_EXPORTER_OTLP_ENDPOINT"},
        Mistake{{{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://x"}, {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem"}},
                no_key,
                "OTEL_EXPORTER_OTLP_CERTIFICATE"},
        Mistake{{{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://x"}, {"OTEL_EXPORTER_OTLP_CLIENT_KEY", "/proc/self/status"}},
                no_key,
                "OTEL_EXPORTER_OTLP_CLIENT_KEY"},
        Mistake{{},
                [](TelemetryConfig& config) {
                  config.otlp_endpoint = "https://x";
                  config.tls.ca_file = "/nowhere.pem";
                },
                "telemetry.tls.ca_file"},
        Mistake{
            {}, [](TelemetryConfig& config) { config.logs.endpoint = "nonsense nonsense"; }, "telemetry.logs.endpoint"},
        Mistake{{},
                [](TelemetryConfig& config) {
                  config.headers = {{"se cret", "x"}};
                },
                "telemetry.headers"},
        Mistake{{},
                [](TelemetryConfig& config) {
                  config.headers = {{"secret!", "x"}};
                },
                "telemetry.headers"},
        Mistake{{}, [](TelemetryConfig& config) { config.sampler = "sometimes"; }, "telemetry.sampler"},
        Mistake{{}, [](TelemetryConfig& config) { config.protocol = Protocol::kFile; }, "telemetry.file_path"}));

}  // namespace
}  // namespace tuft::telemetry::internal
