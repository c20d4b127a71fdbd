#include "app/tuft_worker/worker_telemetry.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "telemetry/settings/config_json.h"

namespace tuft::app {
namespace {

TEST(WorkerTelemetry, PassedConfigIsUsedWithAnOwnInstanceId) {
  telemetry::TelemetryConfig server;
  server.enabled = true;
  server.service_name = "lab";
  server.headers = {{"authorization", "secret"}};
  server.resource_attributes = {{"team", "blue"}, {"service.instance.id", "the-server"}};
  ::setenv(telemetry::kTelemetryVariable, telemetry::to_json(server).c_str(), 1);
  const auto config = take_telemetry_config("org/m");
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->enabled);
  EXPECT_EQ(config->service_name, "lab");
  EXPECT_EQ(config->headers, server.headers);
  EXPECT_EQ(config->resource_attributes.at("team"), "blue");
  EXPECT_EQ(config->resource_attributes.at("tuft.process"), "worker");
  EXPECT_EQ(config->resource_attributes.at("tuft.base_model"), "org/m");
  EXPECT_NE(config->resource_attributes.at("service.instance.id"), "the-server");
  EXPECT_EQ(config->metric_labels, (std::map<std::string, std::string>{{"worker", "org/m"}}));
  EXPECT_EQ(std::getenv(telemetry::kTelemetryVariable), nullptr) << "children must not inherit it";
}

TEST(WorkerTelemetry, AbsentThenOff) {
  ::unsetenv(telemetry::kTelemetryVariable);
  EXPECT_FALSE(take_telemetry_config("m")->enabled);
}

TEST(WorkerTelemetry, BrokenThenAnErrorWithoutItsText) {
  ::setenv(telemetry::kTelemetryVariable, R"({"enabled":"secret"})", 1);
  const auto config = take_telemetry_config("m");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().message.find("secret"), std::string::npos);
  ::unsetenv(telemetry::kTelemetryVariable);
}

}  // namespace
}  // namespace tuft::app
