// Tests the real worker process: the telemetry of its start, and that its end delivers what was not sent before.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <signal.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/init_model.h"
#include "telemetry/context.h"
#include "telemetry/settings/config_json.h"
#include "telemetry/testing/otlp_receiver.h"

extern char** environ;

namespace tuft::app {
namespace {

using telemetry::testing::OtlpReceiver;
using telemetry::testing::ReceivedSpan;
using telemetry::testing::text_of;

class WorkerProcessTest : public ::testing::Test {
 protected:
  static constexpr telemetry::SpanContext kStart = {.trace_id_high = 5, .trace_id_low = 6, .span_id = 7, .flags = 1};

  void SetUp() override {
    engine::InitModelOptions tiny;
    tiny.hidden_size = 16;
    tiny.intermediate_size = 32;
    tiny.layers = 1;
    tiny.heads = tiny.kv_heads = 1;
    tiny.head_dim = 16;
    ASSERT_TRUE(engine::init_model(directory_ / "model", tiny).ok());
    telemetry::TelemetryConfig config;
    config.enabled = true;
    config.otlp_endpoint = receiver_.endpoint();
    ::setenv(telemetry::kTelemetryVariable, telemetry::to_json(config).c_str(), 1);
  }
  void TearDown() override { ::unsetenv(telemetry::kTelemetryVariable); }

  pid_t start(const std::filesystem::path& model) const {
    std::vector<std::string> arguments = {TUFT_WORKER,
                                          "--model-path",
                                          model.string(),
                                          "--model-name",
                                          "tiny",
                                          "--socket",
                                          socket().string(),
                                          "--traceparent",
                                          telemetry::to_traceparent(kStart),
                                          "--threads",
                                          "1"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, TUFT_WORKER, nullptr, nullptr, argv.data(), environ), 0);
    return pid;
  }
  static int exit_code(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::filesystem::path socket() const { return directory_ / "w.sock"; }
  std::optional<ReceivedSpan> span(const std::string& name) const {
    for (auto& span : receiver_.spans()) {
      if (span.name == name) return span;
    }
    return std::nullopt;
  }

  TempDir directory_;
  OtlpReceiver receiver_;
};

TEST_F(WorkerProcessTest, EndedBySigtermThenTheLastIntervalIsDelivered) {
  const pid_t pid = start(directory_ / "model");
  // The weights are loaded when the collector has their span.
  ASSERT_TRUE(receiver_.wait_until([&] { return span("hf_model.load_weights").has_value(); }));
  while (!std::filesystem::exists(socket())) std::this_thread::yield();
  EXPECT_FALSE(receiver_.metric("tuft.worker.startup.duration")) << "an interval is a minute";
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  EXPECT_EQ(exit_code(pid), 0);
  const auto startup = receiver_.metric("tuft.worker.startup.duration");
  ASSERT_TRUE(startup);
  const auto* point = startup->point({{"base_model", "tiny"}, {"phase", "load_weights"}, {"worker", "tiny"}});
  ASSERT_NE(point, nullptr);
  EXPECT_EQ(point->count, 1U);
  for (const char* gauge :
       {"tuft.kv_cache.usage", "tuft.worker.busy", "tuft.scheduler.last_step.age", "process.memory.usage"}) {
    EXPECT_TRUE(receiver_.metric(gauge)) << gauge;
  }
}

TEST_F(WorkerProcessTest, StartIsASpanInTheServersTrace) {
  const pid_t pid = start(directory_ / "model");
  ASSERT_TRUE(receiver_.wait_until([&] { return span("hf_model.load_weights").has_value(); }));
  const ReceivedSpan load = *span("hf_model.load_weights");
  EXPECT_EQ(load.trace_id, kStart.trace_id_hex());
  EXPECT_EQ(load.parent_span_id, kStart.span_id_hex());
  EXPECT_FALSE(load.error);
  EXPECT_EQ(text_of(load.attributes, "tuft.base_model"), "tiny");
  EXPECT_EQ(text_of(load.resource, "tuft.process"), "worker");
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  EXPECT_EQ(exit_code(pid), 0);
}

TEST_F(WorkerProcessTest, MissingModelThenTheSpanHasTheReason) {
  EXPECT_EQ(exit_code(start(directory_ / "nothing")), 1);
  const auto load = span("hf_model.load_weights");
  ASSERT_TRUE(load) << "the end waits for what is not sent";
  EXPECT_TRUE(load->error);
  EXPECT_FALSE(load->status_message.empty());
  ASSERT_EQ(load->events.size(), 1U);
  EXPECT_EQ(load->events[0].name, "exception");
}

}  // namespace
}  // namespace tuft::app
