#include "telemetry/settings/settings.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace tuft::telemetry::internal {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TelemetryConfig with_endpoint(const char* endpoint) {
  return {.enabled = true, .otlp_endpoint = endpoint};
}

TEST(Endpoint, SchemeThenItDecidesTls) {
  EXPECT_FALSE(read_settings(with_endpoint("http://localhost:4317"))->traces.tls);
  EXPECT_EQ(read_settings(with_endpoint("http://localhost:4317"))->traces.endpoint, "localhost:4317");
  EXPECT_TRUE(read_settings(with_endpoint("https://collector.example:443/"))->traces.tls);
  EXPECT_EQ(read_settings(with_endpoint("https://collector.example"))->traces.endpoint, "collector.example:4317");
  EXPECT_EQ(read_settings(with_endpoint("http://[::1]:4317"))->traces.endpoint, "[::1]:4317");
}

TEST(Endpoint, BareHostThenInsecureVariableDecides) {
  EXPECT_TRUE(read_settings(with_endpoint("localhost:4317"))->traces.tls);
  const Variable insecure("OTEL_EXPORTER_OTLP_INSECURE", "true");
  EXPECT_FALSE(read_settings(with_endpoint("localhost:4317"))->traces.tls);
  EXPECT_EQ(read_settings(with_endpoint("localhost:4317"))->traces.endpoint, "localhost:4317");
}

TEST(Endpoint, ConfigurationAndVariableThenConfigurationWins) {
  const Variable variable("TUFT_OTLP_ENDPOINT", "http://from-variable:1");
  EXPECT_EQ(read_settings(with_endpoint("http://from-config:2"))->traces.endpoint, "from-config:2");
  EXPECT_EQ(read_settings({.enabled = true})->traces.endpoint, "from-variable:1");
}

TEST(Endpoint, NoAddressThenTheErrorNamesTheKey) {
  for (const char* bad :
       {"ftp://x:1", "http://", "http://host:notaport", "http://host:0", "http://ho st:1", "://x", "a b"}) {
    const auto settings = read_settings(with_endpoint(bad));
    ASSERT_FALSE(settings.ok()) << bad;
    EXPECT_NE(settings.error().message.find("telemetry.otlp_endpoint"), std::string::npos);
  }
  const Variable variable("TUFT_OTLP_ENDPOINT", "ftp://x");
  EXPECT_NE(read_settings({.enabled = true}).error().message.find("TUFT_OTLP_ENDPOINT"), std::string::npos);
}

}  // namespace
}  // namespace tuft::telemetry::internal
