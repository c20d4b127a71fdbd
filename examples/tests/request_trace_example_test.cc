// Runs examples/request_trace with a collector and checks the trace of its two processes.
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "telemetry/testing/http_receiver.h"
#include "telemetry/testing/otlp_receiver.h"

namespace tuft::telemetry {
namespace {

using testing::OtlpReceiver;
using testing::ReceivedSpan;
using testing::text_of;

struct Example {
  OtlpReceiver receiver;
  std::map<std::string, ReceivedSpan> by_name;  // thread spans by their label

  void run(const std::string& endpoint, const std::string& environment = "") {
    const std::string command =
        "TRACES_ENABLE=true TRACES_EXPORTER=otlp FD_SERVICE_NAME=demo FD_HOST_NAME=trace_test "
        "EXPORTER_OTLP_HEADERS='Authentication=T=xx, other=y' EXPORTER_OTLP_ENDPOINT=" +
        endpoint + " " + environment + " " TUFT_REQUEST_TRACE_EXAMPLE;
    ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c): a fixed command
    for (const ReceivedSpan& span : receiver.spans()) {
      const std::string label = text_of(span.attributes, "thread_label");
      by_name[label.empty() ? span.name : label] = span;
    }
  }
};

void expect_one_connected_trace(Example& example) {
  std::set<std::string> traces;
  for (const auto& [name, span] : example.by_name) traces.insert(span.trace_id);
  ASSERT_EQ(traces.size(), 1U);
  ASSERT_EQ(example.by_name.size(), 9U);

  const ReceivedSpan& root = example.by_name["sample Req r1"];
  EXPECT_EQ(root.parent_span_id, "");
  EXPECT_EQ(text_of(root.attributes, "finish_reason"), "length");
  const std::map<std::string, std::vector<std::string>> rows{
      {"http", {"PREPROCESS"}}, {"scheduler", {"SCHEDULE"}}, {"engine", {"PREFILL", "DECODE", "POSTPROCESS"}}};
  for (const auto& [label, stages] : rows) {
    const ReceivedSpan& row = example.by_name[label];
    EXPECT_EQ(row.parent_span_id, root.span_id) << label;
    EXPECT_EQ(text_of(row.attributes, "host_id"), "trace_test");
    for (const std::string& stage : stages) EXPECT_EQ(example.by_name[stage].parent_span_id, row.span_id) << stage;
  }
  std::string previous;
  for (const char* stage : {"PREPROCESS", "SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS"}) {
    const ReceivedSpan& span = example.by_name[stage];
    ASSERT_EQ(span.links.size(), previous.empty() ? 0U : 1U) << stage;
    if (!previous.empty()) {
      EXPECT_EQ(span.links[0].span_id, previous) << stage;
    }
    previous = span.span_id;
  }
  EXPECT_EQ(example.by_name["DECODE"].events.size(), 3U);
  EXPECT_EQ(text_of(example.by_name["engine"].attributes, "tp_rank"), "0");
  EXPECT_NE(text_of(example.by_name["engine"].resource, "process.pid"), text_of(root.resource, "process.pid"));
  EXPECT_EQ(text_of(root.resource, "service.name"), "demo");
  EXPECT_EQ(text_of(root.resource, "host.name"), "trace_test");
}

TEST(RequestTraceExample, TwoProcessesMakeOneTrace) {
  Example example;
  example.run(example.receiver.endpoint());
  expect_one_connected_trace(example);
  const auto headers = example.receiver.headers();
  ASSERT_TRUE(headers.contains("authentication"));
  EXPECT_EQ(headers.at("authentication"), "T=xx") << "a value may hold '='";
  EXPECT_EQ(headers.at("other"), "y");
}

TEST(RequestTraceExample, BothProcessesExportOverHttpProtobuf) {
  const testing::HttpReceiver receiver;
  Example example;
  example.run(receiver.endpoint(), "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf");
  size_t spans = 0;
  for (const testing::HttpRequest& request : receiver.requests()) {
    EXPECT_EQ(request.path, "/v1/traces");
    EXPECT_EQ(request.headers.at("authentication"), "T=xx");
    opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest body;
    ASSERT_TRUE(body.ParseFromString(request.body));
    for (const auto& resource : body.resource_spans()) {
      for (const auto& scope : resource.scope_spans()) spans += static_cast<size_t>(scope.spans_size());
    }
  }
  EXPECT_EQ(receiver.requests().size(), 2U) << "one batch a process, traces only";
  EXPECT_EQ(spans, 9U);
}

}  // namespace
}  // namespace tuft::telemetry
