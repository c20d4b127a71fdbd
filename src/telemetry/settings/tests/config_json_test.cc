#include "telemetry/settings/config_json.h"

#include <gtest/gtest.h>

namespace tuft::telemetry {
namespace {

TEST(ConfigJson, EveryFieldThenTheSameOnTheOtherSide) {
  TelemetryConfig config;
  config.enabled = true;
  config.service_name = "a \"name\"\n";
  config.otlp_endpoint = "http://c:4317";
  config.resource_attributes = {{"k", "v\\"}, {"l", "w"}};
  config.protocol = Protocol::kFile;
  config.headers = {{"authorization", "Bearer x"}};
  config.compression = Compression::kGzip;
  config.tls = {"/ca", "/cert", "/key"};
  config.file_path = "/f";
  config.export_timeout = 3 * kSecond;
  config.traces = {true, Protocol::kGrpc, "http://t:1"};
  config.metrics = {false, Protocol::kNone, "http://m:1"};
  config.logs = {.enabled = true,
                 .protocol = Protocol::kConsole,
                 .endpoint = "http://l:1",
                 .headers = {{"a", "b"}},
                 .compression = Compression::kGzip,
                 .tls = {"/x", "/y", "/z"},
                 .export_timeout = 1,
                 .batch_delay = 2,
                 .batch_max = 3,
                 .queue_max = 4};
  config.propagate_trace_context = false;
  config.own_log_level = "warn";
  config.environment_ignored = true;
  config.log_level = Severity::kWarning;
  config.sampler = "traceidratio";
  config.sampling_ratio = 0.1;
  config.keep_errors = false;
  config.keep_slower_than = kSecond;
  config.metric_interval = 7 * kSecond;
  config.temporality = Temporality::kDelta;
  config.exemplar_filter = ExemplarFilter::kAlwaysOff;
  config.histogram_aggregation = HistogramAggregation::kExponential;
  config.batch_delay = 9;
  config.batch_max = 10;
  config.queue_max = 11;
  config.shutdown_budget = 12;
  config.trace_archive_bytes = 13;
  config.propagate_baggage = true;
  config.metrics_endpoint = false;
  config.metrics_token = "secret";
  config.tenant_label = true;
  const std::string json = to_json(config);
  const auto read = telemetry_config_from_json(json);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(to_json(*read), json);
  EXPECT_EQ(read->service_name, config.service_name);
  EXPECT_EQ(read->headers, config.headers);
  EXPECT_EQ(read->tls.key_file, config.tls.key_file);
  EXPECT_EQ(read->traces.protocol, Protocol::kGrpc);
  EXPECT_EQ(read->metrics.enabled, false);
  EXPECT_EQ(read->logs.endpoint, config.logs.endpoint);
  EXPECT_EQ(read->log_level, Severity::kWarning);
  EXPECT_EQ(read->sampling_ratio, 0.1);
  EXPECT_EQ(read->temporality, Temporality::kDelta);
  EXPECT_EQ(read->exemplar_filter, ExemplarFilter::kAlwaysOff);
  EXPECT_EQ(read->histogram_aggregation, HistogramAggregation::kExponential);
  EXPECT_EQ(read->logs.headers, config.logs.headers);
  EXPECT_EQ(read->logs.tls.certificate_file, "/y");
  EXPECT_EQ(read->logs.queue_max, 4);
  EXPECT_TRUE(read->environment_ignored);
  EXPECT_EQ(read->shutdown_budget, 12);
  EXPECT_EQ(read->trace_archive_bytes, 13);
  EXPECT_EQ(read->metrics_token, "") << "only the server answers GET /metrics";
}

TEST(ConfigJson, NothingSaidThenStillNothing) {
  const auto read = telemetry_config_from_json(to_json({}));
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->protocol || read->keep_errors || read->traces.enabled || read->otlp_endpoint);
  EXPECT_TRUE(read->metrics_endpoint);
}

TEST(ConfigJson, AnythingElseThenAnErrorWithoutValues) {
  for (const char* wrong : {"", "[]", "{", R"({"enabled":"secret"})", R"({"headers":["secret"]})", R"({"secret":1})",
                            R"({"batch_max":"secret"})", R"({"headers":{"a":3}})"}) {
    const auto read = telemetry_config_from_json(wrong);
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_EQ(read.error().message.find("secret"), std::string::npos) << read.error().message;
  }
}

TEST(ConfigJson, BrokenUtf8ThenReplacedNotThrown) {
  TelemetryConfig config;
  config.service_name = "a\xff";
  EXPECT_TRUE(telemetry_config_from_json(to_json(config)).ok());
}

}  // namespace
}  // namespace tuft::telemetry
