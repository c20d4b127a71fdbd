#include <cstdlib>
#include <map>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/request_trace.h"
#include "telemetry/telemetry.h"
#include "telemetry/testing/http_receiver.h"
#include "telemetry/testing/otlp_receiver.h"

namespace tuft::telemetry {
namespace {

using ::testing::HasSubstr;
using testing::OtlpReceiver;
using testing::text_of;

using Variables = std::map<std::string, std::string>;

class Environment {
 public:
  explicit Environment(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  Variables variables_;
};

TEST(ProcessTracingInit, EnvironmentThenTracesArriveWithItsNamesAndHeaders) {
  OtlpReceiver receiver;
  const Environment environment(Variables{{"TRACES_ENABLE", "True"},
                                          {"FD_SERVICE_NAME", "FastDeploy"},
                                          {"FD_HOST_NAME", "trace_test"},
                                          {"TRACES_EXPORTER", "otlp"},
                                          {"EXPORTER_OTLP_ENDPOINT", receiver.endpoint()},
                                          {"EXPORTER_OTLP_HEADERS", "Authentication=Basic dA==, Tenant = a "},
                                          {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"},
                                          {"FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS", "20"},
                                          {"FD_OTLP_EXPORTER_MAX_EXPORT_BATCH_SIZE", "64"}});
  ASSERT_TRUE(process_tracing_init().ok());
  EXPECT_TRUE(telemetry_enabled());
  EXPECT_TRUE(process_tracing_init().ok()) << "a second call changes nothing";
  ASSERT_TRUE(trace_req_start("r1"));
  process_tracing_shutdown(20 * kSecond);
  EXPECT_FALSE(telemetry_enabled());
  EXPECT_EQ(traced_requests(), 0U);
  const auto spans = receiver.spans();
  ASSERT_EQ(spans.size(), 2U) << "what was open is closed and delivered";
  for (const auto& span : spans) {
    EXPECT_EQ(text_of(span.resource, "service.name"), "FastDeploy");
    EXPECT_EQ(text_of(span.resource, "host.name"), "trace_test");
    EXPECT_EQ(text_of(span.attributes, "tuft.trace.unfinished"), "true");
  }
  EXPECT_EQ(receiver.headers()["authentication"], "Basic dA==");
  EXPECT_EQ(receiver.headers()["tenant"], "a");
  EXPECT_TRUE(receiver.metrics().empty()) << "traces only";
}

TEST(ProcessTracingInit, HttpAddressWithAPathThenItIsUsedAsItStands) {
  testing::HttpReceiver receiver;
  for (const char* path : {"", "/v1/traces"}) {
    const Environment environment(Variables{{"TRACES_ENABLE", "true"},
                                            {"EXPORTER_OTLP_ENDPOINT", receiver.endpoint() + path},
                                            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"}});
    ASSERT_TRUE(process_tracing_init().ok());
    ASSERT_TRUE(trace_req_start("r1"));
    process_tracing_shutdown(20 * kSecond);
    ASSERT_FALSE(receiver.requests().empty());
    EXPECT_EQ(receiver.requests().back().path, "/v1/traces") << path;
  }
  EXPECT_EQ(receiver.requests().size(), 2U);
}

TEST(ProcessTracingInit, NotEnabledThenOff) {
  EXPECT_TRUE(process_tracing_init().ok());
  EXPECT_FALSE(telemetry_enabled());
  const Environment environment(Variables{{"TRACES_ENABLE", "no"}});
  EXPECT_TRUE(process_tracing_init().ok());
  EXPECT_FALSE(telemetry_enabled());
}

TEST(ProcessTracingInit, WrongValueThenOffAndTheVariableIsNamedNotItsSecret) {
  struct Case {
    const char* name;
    const char* value;
  };
  for (const Case& wrong :
       {Case{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "thrift"}, Case{"TRACES_EXPORTER", "zipkin"},
        Case{"EXPORTER_OTLP_HEADERS", "secret-without-equals"}, Case{"EXPORTER_OTLP_HEADERS", "se cret=x"},
        Case{"EXPORTER_OTLP_ENDPOINT", "not a url"}, Case{"FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS", "soon"},
        Case{"FD_OTLP_EXPORTER_MAX_EXPORT_BATCH_SIZE", "0"}}) {
    const Environment environment(Variables{{"TRACES_ENABLE", "true"}, {wrong.name, wrong.value}});
    const Status status = process_tracing_init();
    ASSERT_FALSE(status.ok()) << wrong.name;
    EXPECT_THAT(status.error().message, HasSubstr(wrong.name));
    EXPECT_FALSE(telemetry_enabled());
    EXPECT_EQ(status.error().message.find("secret-without"), std::string::npos);
  }
}

// The child has none of the parent's requests, and its thread counts as another one.
TEST(ProcessTracingInit, ForkThenTheChildStartsAfresh) {
  OtlpReceiver receiver;
  const Environment environment(Variables{{"TRACES_ENABLE", "true"}, {"EXPORTER_OTLP_ENDPOINT", receiver.endpoint()}});
  ASSERT_TRUE(process_tracing_init().ok());
  trace_set_thread_info("parent");
  ASSERT_TRUE(trace_req_start("r1"));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool good = !trace_slice_start("lost", "r1") && traced_requests() == 0 && !trace_req_start("r2");
    ::_exit(good ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(trace_slice_start("kept", "r1"));
  trace_req_finish("r1");
  process_tracing_shutdown(20 * kSecond);
  EXPECT_EQ(receiver.spans().size(), 3U);
}

}  // namespace
}  // namespace tuft::telemetry
