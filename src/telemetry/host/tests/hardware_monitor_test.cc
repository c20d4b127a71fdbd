#include "telemetry/hardware_monitor.h"

#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "telemetry/host/tests/fake_gpus.h"

namespace tuft::telemetry {
namespace {

constexpr Nanos kHour = 3600 * kSecond;

HardwareReport collect(HardwareMonitor& monitor, size_t samples) {
  EXPECT_TRUE(monitor.start().ok());
  while (monitor.sample_count() < samples) std::this_thread::yield();
  return monitor.stop_and_collect();
}

TEST(HardwareMonitor, GpusThenSamplesOfThemInOrderOfTime) {
  load_fake_nvml();
  HardwareMonitor monitor(kMillisecond);
  const HardwareReport report = collect(monitor, 5);
  EXPECT_EQ(report.status, MonitorStatus::kSuccess) << report.detail;
  ASSERT_GE(report.samples.size(), 5u);
  EXPECT_EQ(report.samples.front().time, 0);
  for (size_t i = 1; i < report.samples.size(); ++i) EXPECT_GT(report.samples[i].time, report.samples[i - 1].time);
  const HardwareSample& sample = report.samples.back();
  ASSERT_EQ(sample.gpus.size(), 2u);
  EXPECT_EQ(*sample.gpus[0].utilization_percent, 75);
  EXPECT_EQ(*sample.gpus[0].temperature_celsius, 61);
  EXPECT_FALSE(sample.gpus[1].utilization_percent.has_value());
  EXPECT_GT(*sample.memory_percent, 0);
  EXPECT_EQ(report.gpu_utilization_percent.mean, 75);
  EXPECT_EQ(report.gpu_memory_used_bytes.max, 2e9);
  EXPECT_EQ(report.gpu_utilization_percent.count, report.samples.size());
  EXPECT_LE(report.memory_percent.max, 100);
}

TEST(HardwareMonitor, WorkIsDoneThenTheProcessorsAreBusy) {
  HardwareMonitor monitor(kMillisecond);
  ASSERT_TRUE(monitor.start().ok());
  // Taking samples, and waiting for them without a pause, uses the processor.
  HardwareReport report;
  while (monitor.sample_count() < 100) std::this_thread::yield();
  report = monitor.stop_and_collect();
  EXPECT_GT(report.cpu_percent.max, 0);
  EXPECT_LE(report.cpu_percent.max, 100);
}

TEST(HardwareMonitor, StoppedBeforeTheFirstIntervalThenSaidSo) {
  HardwareMonitor monitor(kHour);
  ASSERT_TRUE(monitor.start().ok());
  EXPECT_EQ(monitor.stop_and_collect().status, MonitorStatus::kNoSamplesCollected);
}

TEST(HardwareMonitor, NotStartedThenFailed) {
  HardwareMonitor monitor;
  const HardwareReport report = monitor.stop_and_collect();
  EXPECT_EQ(report.status, MonitorStatus::kFailed);
  EXPECT_EQ(report.detail, "the monitor was not started");
}

TEST(HardwareMonitor, StartedAgainThenOnlyTheNewSamples) {
  HardwareMonitor monitor(kMillisecond);
  collect(monitor, 3);
  EXPECT_EQ(monitor.sample_count(), 0u);
  const HardwareReport again = collect(monitor, 1);
  EXPECT_EQ(again.samples.front().time, 0);
  EXPECT_EQ(monitor.stop_and_collect().status, MonitorStatus::kFailed) << "what was collected is gone";
}

TEST(HardwareMonitor, DestroyedWhileItRunsThenItsThreadEnds) {
  HardwareMonitor monitor(kHour);
  ASSERT_TRUE(monitor.start().ok());
  ASSERT_TRUE(monitor.start().ok()) << "a second start changes nothing";
}

TEST(HardwareInfo, ThisMachineThenDescribed) {
  load_fake_nvml();
  const HardwareInfo info = hardware_info();
  EXPECT_EQ(info.gpu_name, "Fake H1");
  EXPECT_EQ(info.gpu_count, 2);
  EXPECT_EQ(info.gpu_memory_total, 8'000'000'000u);
  EXPECT_EQ(info.gpu_driver_version, "999.1");
  ASSERT_EQ(info.gpus.size(), 2u);
  EXPECT_EQ(info.gpus[1].name, "Fake K1");
  EXPECT_EQ(info.gpus[1].id, "GPU-two");
  EXPECT_EQ(info.gpus[1].vendor, "NVIDIA");
  EXPECT_EQ(info.gpus[1].memory_total, 8'000'000'000u);
  EXPECT_EQ(info.cuda_version, "12.8");
  EXPECT_EQ(info.rocm_version, "") << "that of NVIDIA's GPUs is CUDA";
  EXPECT_GT(info.cpu_count, 0);
  EXPECT_GT(info.memory_total, 0u);
  EXPECT_FALSE(info.kernel_version.empty());
}

TEST(HardwareJson, ReportThenReadableAndWithoutSamplesUnlessAskedFor) {
  load_fake_nvml();
  HardwareMonitor monitor(kMillisecond);
  const HardwareReport report = collect(monitor, 2);
  const auto brief = nlohmann::json::parse(hardware_json(hardware_info(), report, false));
  EXPECT_EQ(brief["status"], "success");
  const HardwareInfo info = hardware_info();
  EXPECT_EQ(brief["hardware"]["gpu_name"], "Fake H1");
  EXPECT_EQ(brief["hardware"]["gpu_driver_version"], "999.1");
  EXPECT_EQ(brief["hardware"]["cuda_version"], "12.8");
  EXPECT_EQ(brief["hardware"]["rocm_version"], "");
  EXPECT_EQ(brief["hardware"]["torch_version"], info.torch_version);
  EXPECT_EQ(brief["hardware"]["compiler_version"], info.compiler_version);
  EXPECT_EQ(brief["hardware"]["tuft_version"], info.tuft_version);
  EXPECT_EQ(brief["hardware"]["gpus"][1]["vendor"], "NVIDIA");
  EXPECT_EQ(brief["hardware"]["gpus"][1]["driver_version"], "999.1");
  EXPECT_EQ(brief["gpu_utilization_percent"]["mean"], 75);
  EXPECT_FALSE(brief.contains("samples"));
  const auto whole = nlohmann::json::parse(hardware_json(hardware_info(), report, true));
  EXPECT_EQ(whole["samples"].size(), report.samples.size());
  EXPECT_EQ(whole["samples"][0]["gpus"][1]["utilization_percent"], nullptr);
}

}  // namespace
}  // namespace tuft::telemetry
