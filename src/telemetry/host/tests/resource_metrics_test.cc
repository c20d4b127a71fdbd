#include <cstdlib>
#include <dlfcn.h>
#include <string>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "telemetry/host/nvml.h"
#include "telemetry/log.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry {
namespace {

using internal::Nvml;

// It has the soname of the real library, so dlopen() of that name finds this one.
void load_fake_nvml() {
  ASSERT_NE(::dlopen(TUFT_FAKE_NVML, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
}

TEST(Nvml, LibraryAbsentThenNone) {
  EXPECT_EQ(Nvml::open("libnvidia-ml-of-nobody.so.1"), nullptr);
}

TEST(Nvml, LibraryOfAnotherKindThenNone) {
  EXPECT_EQ(Nvml::open("libc.so.6"), nullptr);
}

TEST(Nvml, TwoGpusThenTheValuesOfEach) {
  const auto nvml = Nvml::open(TUFT_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  ASSERT_EQ(nvml->gpus().size(), 2u);
  EXPECT_EQ(nvml->gpus()[0].name, "Fake H1");
  EXPECT_EQ(nvml->gpus()[1].uuid, "GPU-two");
  EXPECT_EQ(nvml->driver_version(), "999.1");
  const auto use = nvml->read();
  ASSERT_EQ(use.size(), 2u);
  EXPECT_DOUBLE_EQ(*use[0].utilization, 0.75);
  EXPECT_DOUBLE_EQ(*use[0].memory_used, 2e9);
  EXPECT_DOUBLE_EQ(*use[0].power_watts, 250.5);
  EXPECT_DOUBLE_EQ(*use[0].energy_joules, 12345);
  EXPECT_DOUBLE_EQ(*use[0].temperature_celsius, 61);
  EXPECT_FALSE(use[1].utilization.has_value());
  EXPECT_FALSE(use[1].power_watts.has_value());
  EXPECT_DOUBLE_EQ(*use[1].memory_total, 8e9);
}

TEST(ResourceMetrics, StartedThenEveryGaugeOfMachineAndProcess) {
  load_fake_nvml();
  const TempDir checkpoints;
  WithCollector collector;
  start_resource_metrics(checkpoints.path());
  ASSERT_TRUE(collector.flush());
  for (const char* name :
       {"tuft.resource.memory.used_bytes", "tuft.resource.memory.total_bytes",
        "tuft.resource.memory.utilization_percent", "tuft.resource.process.memory_used_bytes", "system.memory.usage",
        "system.network.io", "system.filesystem.usage", "process.cpu.time", "process.memory.usage",
        "process.memory.virtual", "process.thread.count", "process.unix.file_descriptor.count",
        "process.context_switches", "process.paging.faults", "process.uptime", "tuft.build.info"})
    EXPECT_TRUE(collector.receiver.metric(name).has_value()) << name;
  EXPECT_EQ(collector.sum("tuft.resource.gpu.utilization_percent", {{"gpu_id", "0"}}), 75);
  EXPECT_EQ(collector.sum("tuft.resource.gpu.memory_total_bytes", {{"gpu_id", "1"}}), 8e9);
  EXPECT_EQ(collector.sum("hw.gpu.utilization", {{"hw.id", "GPU-one"}, {"hw.name", "Fake H1"}}), 0.75);
  EXPECT_EQ(collector.sum("hw.energy", {{"hw.id", "GPU-one"}, {"hw.name", "Fake H1"}, {"hw.type", "gpu"}}), 12345);
  EXPECT_EQ(collector.sum("hw.power", {{"hw.id", "GPU-two"}, {"hw.name", "Fake K1"}, {"hw.type", "gpu"}}), -1);
  EXPECT_EQ(collector.receiver.metric("process.cpu.time")->kind, "sum");
  EXPECT_TRUE(collector.receiver.metric("process.cpu.time")->monotonic);
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

TEST(ResourceMetricsDeathTest, NoNvmlThenOneLineSaysSo) {
  if (Nvml::open() != nullptr) GTEST_SKIP() << "this machine has a GPU, or another test has loaded a fake one";
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
