#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "telemetry/hardware_monitor.h"
#include "telemetry/host/gpu_library.h"
#include "telemetry/host/tests/fake_gpus.h"
#include "telemetry/log.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry {
namespace {

TEST(ResourceMetrics, StartedThenEveryGaugeOfMachineAndProcess) {
  load_fake_nvml();
  const TempDir checkpoints;
  WithCollector collector;
  start_resource_metrics(checkpoints.path());
  ASSERT_TRUE(collector.flush());
  for (const char* name : {"tuft.resource.memory.used_bytes", "tuft.resource.memory.total_bytes",
                           "tuft.resource.memory.utilization_percent", "tuft.resource.process.memory_used_bytes",
                           "system.memory.usage", "system.memory.limit", "system.cpu.logical.count",
                           "system.network.io", "system.filesystem.usage", "process.cpu.time", "process.memory.usage",
                           "process.memory.virtual", "process.thread.count", "process.unix.file_descriptor.count",
                           "process.context_switches", "process.paging.faults", "process.uptime", "tuft.build.info"})
    EXPECT_TRUE(collector.receiver.metric(name).has_value()) << name;
  EXPECT_EQ(collector.sum("tuft.resource.gpu.utilization_percent", {{"gpu_id", "0"}}), 75);
  EXPECT_EQ(collector.sum("tuft.resource.gpu.memory_used_bytes", {{"gpu_id", "0"}}), 2e9);
  EXPECT_EQ(collector.sum("tuft.resource.gpu.memory_used_bytes", {{"gpu_id", "1"}}), 0);
  EXPECT_EQ(collector.receiver.metric("tuft.resource.gpu.memory_used_bytes")->points.size(), 2u);
  EXPECT_EQ(collector.sum("tuft.resource.gpu.memory_total_bytes", {{"gpu_id", "1"}}), 8e9);
  EXPECT_EQ(collector.sum("tuft.resource.gpu.info", {{"gpu_id", "1"},
                                                     {"hw.id", "GPU-two"},
                                                     {"hw.name", "Fake K1"},
                                                     {"hw.vendor", "NVIDIA"},
                                                     {"hw.driver_version", "999.1"},
                                                     {"runtime", "CUDA 12.8"}}),
            1);
  EXPECT_EQ(collector.sum("hw.gpu.utilization", {{"hw.id", "GPU-one"}, {"hw.name", "Fake H1"}}), 0.75);
  EXPECT_EQ(collector.sum("hw.energy", {{"hw.id", "GPU-one"}, {"hw.name", "Fake H1"}, {"hw.type", "gpu"}}), 12345);
  EXPECT_EQ(collector.sum("hw.power", {{"hw.id", "GPU-two"}, {"hw.name", "Fake K1"}, {"hw.type", "gpu"}}), -1);
  EXPECT_EQ(collector.sum("system.memory.limit"), collector.sum("tuft.resource.memory.total_bytes"));
  EXPECT_EQ(collector.sum("system.cpu.logical.count"), hardware_info().cpu_count);
  EXPECT_EQ(collector.receiver.metric("process.cpu.time")->kind, "sum");
  EXPECT_TRUE(collector.receiver.metric("process.cpu.time")->monotonic);
}

TEST(ResourceMetrics, StartedThenTheBuildIsDescribed) {
  WithCollector collector;
  start_resource_metrics();
  ASSERT_TRUE(collector.flush());
  const HardwareInfo info = hardware_info();
  EXPECT_FALSE(info.compiler_version.empty());
  EXPECT_EQ(collector.sum("tuft.build.info", {{"version", info.tuft_version},
                                              {"compiler_version", info.compiler_version},
                                              {"torch_version", info.torch_version}}),
            1);
}

TEST(ResourceMetrics, NoDiskNamedThenTheMachineIsLeftToAnotherProcess) {
  load_fake_nvml();
  WithCollector collector;
  start_resource_metrics();
  ASSERT_TRUE(collector.flush());
  EXPECT_TRUE(collector.receiver.metric("process.memory.usage").has_value());
  EXPECT_TRUE(collector.receiver.metric("tuft.resource.memory.used_bytes").has_value());
  EXPECT_FALSE(collector.receiver.metric("system.memory.usage").has_value());
}

TEST(ResourceMetrics, OneCollectionThenOneSample) {
  load_fake_nvml();
  WithCollector collector;
  start_resource_metrics();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("process.memory.usage"), collector.sum("tuft.resource.process.memory_used_bytes"));
}

TEST(ResourceMetrics, TelemetryEndedThenTheGaugesAreGone) {
  load_fake_nvml();
  {
    WithCollector collector;
    start_resource_metrics();
  }
  WithCollector collector;
  ASSERT_TRUE(collector.flush());
  EXPECT_FALSE(collector.receiver.metric("process.memory.usage").has_value());
  EXPECT_FALSE(collector.receiver.metric("hw.gpu.utilization").has_value());
}

// In a process of its own, because a library that is loaded once is found by every later test.
TEST(ResourceMetricsDeathTest, SeveralVendorsThenEachGpuHasANumberOfItsOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        load_fake_nvml();
        load_fake("libamd_smi.so.26");
        WithCollector collector;
        start_resource_metrics();
        bool right = collector.flush();
        const char* used = "tuft.resource.gpu.memory_used_bytes";
        for (const auto& [id, bytes] : std::map<std::string, double>{{"0", 2e9}, {"1", 0}, {"2", 16e9}, {"3", 1e9}})
          right = right && collector.sum(used, {{"gpu_id", id}}) == bytes;
        right = right && collector.receiver.metric(used)->points.size() == 4;
        right = right && collector.sum("hw.gpu.utilization", {{"hw.id", "ffff-one"}, {"hw.name", "Fake M1"}}) == 0.4;
        right = right && hardware_info().gpus.at(2).vendor == "AMD";
        std::exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(ResourceMetricsDeathTest, NoGpuThenOneLineSaysSo) {
  if (internal::open_gpus() != nullptr) GTEST_SKIP() << "this machine has a GPU, or another test has loaded a fake one";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        WithCollector collector;
        start_resource_metrics();
        flush_logging();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "telemetry.no_gpu_metrics");
}

}  // namespace
}  // namespace tuft::telemetry
