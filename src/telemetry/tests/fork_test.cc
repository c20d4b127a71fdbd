// Checks that a child of fork() does not hang, exports none of its parent's data, and can start telemetry itself.
#include <atomic>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <opentelemetry/proto/collector/logs/v1/logs_service.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "base/id.h"
#include "telemetry/log.h"
#include "telemetry/record/tail_sampler.h"
#include "telemetry/testing/http_receiver.h"
#include "telemetry/testing/program_metrics.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

void record_everything() {
  static const Tracer tracer = get_tracer("tuft.fork");
  Span span = tracer.start_span("work", {.attributes = {{"n", 1}}});
  const ContextScope scope(span.context());
  log_debug("fork.test", "never shown");
  testing::program_metrics().created.add(1, {{"operation_type", "fork"}});
  testing::program_metrics().execution_time.record(0.1, {{"operation_type", "fork"}});
  const SpanContext context = extract([](std::string_view key) -> std::string_view {
    if (key == "traceparent") return "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    return key == "tracestate" ? "a=1" : "";
  });
  inject(context, [](std::string_view, const std::string&) {});
  keep_traces({});
}

// Threads that record until the end of the scope.
class Recorders {
 public:
  Recorders() {
    // A fork while another thread initializes a static variable leaves the variable locked in the child. This program's
    // own are therefore initialized before.
    record_everything();
    for (int i = 0; i < 4; ++i) {
      threads_.emplace_back([this] {
        while (!stop_) record_everything();
      });
    }
  }
  ~Recorders() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

#if defined(TUFT_SANITIZE_THREAD)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(TUFT_SANITIZE_ADDRESS)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
// ThreadSanitizer ends a child whose new thread gets the id of a thread of the parent, which it counts as running.
constexpr bool kChildrenMayStartThreads = !kThreadSanitizer;
// Another thread may have held the lock of AddressSanitizer's allocator, which then stays locked in the child.
constexpr bool kThreadsMayAllocateAtForks = !kAddressSanitizer;

// Returns the child's exit code, its only report because it shares our output. A child that hangs is killed.
template <typename Child>
int in_child(Child&& child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(30);
    ::_exit(child());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Fork, ThreadsRecordThenTheChildNeitherHangsNorExports) {
  if (!kThreadsMayAllocateAtForks) GTEST_SKIP() << "not under AddressSanitizer";
  WithCollector collector;
  {
    const Recorders recorders;
    for (int i = 0; i < 30; ++i) {
      EXPECT_EQ(in_child([] {
                  if (telemetry_enabled()) return 2;
                  Span span = get_tracer("tuft.fork").start_span("in child");
                  if (span.recording()) return 3;
                  for (int n = 0; n < 100; ++n) record_everything();
                  // Uses new label sets and names, because another thread may have been changing their tables.
                  testing::program_metrics().created.with({{"operation_type", "in child"}}).add(1);
                  Name::intern("in child");
                  log_info("fork.child", "a line from the child");
                  if (!flush_telemetry(kSecond)) return 4;
                  shutdown_telemetry(kSecond);
                  return 0;
                }),
                0)
          << i;
    }
  }
  ASSERT_TRUE(collector.flush());
  EXPECT_FALSE(collector.span("in child"));
  EXPECT_FALSE(collector.log("fork.child"));
  const pid_t self = ::getpid();
  for (const auto& span : collector.receiver.spans())
    EXPECT_EQ(testing::text_of(span.resource, "process.pid"), std::to_string(self));
}

// Receives what children send over HTTP, because gRPC does not survive a fork.
class ChildCollector {
 public:
  TelemetryConfig config() const {
    return {.enabled = true, .otlp_endpoint = receiver_.endpoint(), .protocol = Protocol::kHttpProtobuf};
  }
  std::vector<std::string> spans() const {
    std::vector<std::string> names;
    for (const auto& request : receiver_.requests()) {
      opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest body;
      if (request.path != "/v1/traces" || !body.ParseFromString(request.body)) continue;
      for (const auto& resource : body.resource_spans())
        for (const auto& scope : resource.scope_spans())
          for (const auto& span : scope.spans()) names.push_back(span.name());
    }
    return names;
  }
  // Returns the value of a counter's first point; -1 if it did not arrive.
  int64_t counter(const std::string& name) const {
    int64_t value = -1;
    for (const auto& request : receiver_.requests()) {
      opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceRequest body;
      if (request.path != "/v1/metrics" || !body.ParseFromString(request.body)) continue;
      for (const auto& resource : body.resource_metrics())
        for (const auto& scope : resource.scope_metrics())
          for (const auto& metric : scope.metrics())
            if (metric.name() == name) value = metric.sum().data_points(0).as_int();
    }
    return value;
  }
  std::string instance_id() const {
    for (const auto& request : receiver_.requests()) {
      opentelemetry::proto::collector::logs::v1::ExportLogsServiceRequest body;
      if (request.path != "/v1/logs" || !body.ParseFromString(request.body)) continue;
      for (const auto& attribute : body.resource_logs(0).resource().attributes())
        if (attribute.key() == "service.instance.id") return attribute.value().string_value();
    }
    return "";
  }

 private:
  testing::HttpReceiver receiver_;
};

TEST(Fork, ChildStartsAnewThenItsOwnTelemetryArrivesWithItsOwnIdentity) {
  if (!kThreadsMayAllocateAtForks) GTEST_SKIP() << "not under AddressSanitizer";
  if (!kChildrenMayStartThreads) GTEST_SKIP() << "not under ThreadSanitizer";
  const ChildCollector children;
  WithCollector collector;
  testing::program_metrics().sampling_requests.add(1000, {{"base_model", "fork"}});
  int code = 0;
  {
    const Recorders recorders;
    code = in_child([&] {
      if (!init_telemetry(children.config()).ok()) return 2;
      { const Span span = get_tracer("tuft.fork").start_span("of the child"); }
      testing::program_metrics().sampling_requests.add(4, {{"base_model", "fork"}});
      log_info("fork.child", "a line from the child");
      shutdown_telemetry(20 * kSecond);
      return 0;
    });
  }
  EXPECT_EQ(code, 0);
  EXPECT_EQ(children.spans(), std::vector<std::string>{"of the child"}) << "what the parent recorded is the parent's";
  EXPECT_EQ(children.counter("tuft.sampling.requests"), 4) << "what the parent counted is the parent's";
  ASSERT_TRUE(collector.flush());
  ASSERT_TRUE(collector.span("work"));
  EXPECT_FALSE(children.instance_id().empty());
  EXPECT_NE(children.instance_id(), testing::text_of(collector.span("work")->resource, "service.instance.id"));
}

TEST(Fork, ChildOfAGrpcUserAsksForGrpcThenTheErrorNamesTheCure) {
  WithCollector collector;
  const std::string endpoint = collector.receiver.endpoint();
  EXPECT_EQ(in_child([&] {
              const Status status = init_telemetry({.enabled = true, .otlp_endpoint = endpoint});
              if (status.ok()) return 2;
              return status.error().message.find("http/protobuf") == std::string::npos ? 3 : 0;
            }),
            0);
}

TEST(Fork, SpanAliveAtTheForkThenOnlyTheParentWritesIt) {
  if (!kChildrenMayStartThreads) GTEST_SKIP() << "not under ThreadSanitizer";
  const ChildCollector children;
  WithCollector collector;
  Span span = get_tracer("tuft.fork").start_span("alive");
  EXPECT_EQ(in_child([&] {
              if (!init_telemetry(children.config()).ok()) return 2;
              span.end();
              { const Span other = get_tracer("tuft.fork").start_span("of the child"); }
              shutdown_telemetry(20 * kSecond);
              return 0;
            }),
            0);
  span.end();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(children.spans(), std::vector<std::string>{"of the child"});
  EXPECT_TRUE(collector.span("alive"));
}

TEST(Fork, RandomNumbersThenTheChildDrawsOthers) {
  random_u64();
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  in_child([&] {
    const uint64_t drawn = random_u64();
    return ::write(fds[1], &drawn, sizeof(drawn)) == sizeof(drawn) ? 0 : 1;
  });
  uint64_t of_child = 0;
  ASSERT_EQ(::read(fds[0], &of_child, sizeof(of_child)), static_cast<ssize_t>(sizeof(of_child)));
  EXPECT_NE(of_child, random_u64());
  ::close(fds[0]);
  ::close(fds[1]);
}

}  // namespace
}  // namespace tuft::telemetry
