// Tests how the file that OTEL_CONFIG_FILE names meets our own configuration, other variables and flags.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "config/config.h"
#include "config/tests/model_directory.h"
#include "config/tests/otel_text.h"
#include "config/tests/variables.h"
#include "telemetry/settings/settings.h"

namespace tuft::config {
namespace {

using telemetry::Protocol;
using telemetry::TelemetryConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file on disk and the variable that names it.
class NamedFile {
 public:
  explicit NamedFile(const std::string& text)
      : variable_(Variables{{"OTEL_CONFIG_FILE", (directory_ / "otel_config_file.yaml").string()}}) {
    write_text(directory_ / "otel_config_file.yaml", text);
  }

 private:
  const TempDir directory_;
  const WithVariables variable_;
};

Result<Loaded> load_with(const std::string& telemetry) {
  return parse_config(one_model() + kUsers + telemetry, "tuft.yaml");
}

TEST(OtelConfigFile, NamedThenItDecidesAndOnlyOurOwnKeysOfTheSectionStay) {
  const NamedFile file(kTraces);
  const Result<Loaded> loaded = load_with(R"(telemetry:
  enabled: true
  service_name: mine
  otlp_endpoint: http://other:4317
  keep_errors: false
  metrics_token: plainsecret
)");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const TelemetryConfig& config = loaded->config.telemetry;
  EXPECT_TRUE(config.enabled);
  EXPECT_EQ(config.service_name, "mine");
  EXPECT_EQ(config.keep_errors, false);
  EXPECT_EQ(config.metrics_token, "plainsecret");
  EXPECT_FALSE(config.otlp_endpoint);
  EXPECT_EQ(config.traces.endpoint, "http://localhost:4318/v1/traces");
  EXPECT_THAT(loaded->warnings, ElementsAre(HasSubstr("telemetry.otlp_endpoint: has no effect: OTEL_CONFIG_FILE")));
}

TEST(OtelConfigFile, OtherVariablesThenIgnored) {
  const NamedFile file(kTraces);
  const WithVariables variables({{"OTEL_EXPORTER_OTLP_HEADERS", "a=b"},
                                 {"OTEL_SERVICE_NAME", "other"},
                                 {"OTEL_SDK_DISABLED", "true"},
                                 {"OTEL_TRACES_SAMPLER", "always_off"},
                                 {"OTEL_PROPAGATORS", "baggage"}});
  const Result<Loaded> loaded = load_with("");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto settings = telemetry::internal::read_settings(loaded->config.telemetry);
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_TRUE(settings->enabled);
  EXPECT_EQ(settings->service_name, "tuft");
  EXPECT_TRUE(settings->traces.headers.empty());
  EXPECT_EQ(settings->sampling_threshold, UINT64_MAX);
  EXPECT_FALSE(settings->propagate_baggage);
  EXPECT_EQ(settings->traces.interval, 5 * kSecond);
  EXPECT_EQ(settings->metrics.protocol, Protocol::kNone);
}

TEST(OtelConfigFile, EndpointOnTheCommandLineThenItWins) {
  const NamedFile file(kTraces);
  const TempDir directory;
  write_text(directory / "tuft.yaml", one_model() + kUsers);
  const WithVariables variables(Variables{{"TUFT_HOME", (directory / "home").string()}});
  Overrides flags;
  flags.config_path = (directory / "tuft.yaml").string();
  flags.otlp_traces_endpoint = "http://flag:4318/v1/traces";
  const Result<Loaded> loaded = load_config(flags);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->config.telemetry.traces.endpoint, "http://flag:4318/v1/traces");
}

TEST(OtelConfigFile, SectionSwitchesTelemetryOffThenOff) {
  const NamedFile file(kTraces);
  const Result<Loaded> loaded = load_with("telemetry: {enabled: false}\n");
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->config.telemetry.enabled);
}

TEST(OtelConfigFile, FileNamesTheServiceThenItsNameCounts) {
  const NamedFile file(std::string(kTraces) + "resource: {attributes: [{name: service.name, value: theirs}]}\n");
  const Result<Loaded> loaded = load_with("telemetry: {service_name: mine}\n");
  ASSERT_TRUE(loaded.ok());
  EXPECT_THAT(loaded->warnings, ElementsAre(HasSubstr("telemetry.service_name: has no effect")));
  EXPECT_EQ(telemetry::internal::read_settings(loaded->config.telemetry)->service_name, "theirs");
}

TEST(OtelConfigFile, WrongOrAbsentThenTheStartFails) {
  {
    const NamedFile file("file_format: \"1.1\"\npropagator: {composite: [{b3: }]}\n");
    const Result<Loaded> loaded = load_with("");
    ASSERT_FALSE(loaded.ok());
    EXPECT_THAT(loaded.error().message, HasSubstr("otel_config_file.yaml:2: propagator.composite[0].b3"));
  }
  const WithVariables variables(Variables{{"OTEL_CONFIG_FILE", "/nowhere/otel.yaml"}});
  const Result<Loaded> loaded = load_with("");
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("OTEL_CONFIG_FILE: "));
}

}  // namespace
}  // namespace tuft::config
