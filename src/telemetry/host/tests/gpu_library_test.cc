#include "telemetry/host/gpu_library.h"

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "telemetry/host/tests/fake_gpus.h"

namespace tuft::telemetry::internal {
namespace {

using Open = std::unique_ptr<GpuLibrary> (*)(const char*);
constexpr std::initializer_list<Open> kLibraries{&open_nvml, &open_amd_smi, &open_rocm_smi};

TEST(GpuLibrary, AbsentThenNone) {
  for (const Open open : kLibraries) EXPECT_EQ(open("libgpu-of-nobody.so.1"), nullptr);
}

TEST(GpuLibrary, WithoutTheFunctionsThatAreNeededThenNone) {
  for (const Open open : kLibraries) EXPECT_EQ(open("libc.so.6"), nullptr);
}

TEST(Nvml, TwoGpusThenTheValuesOfEach) {
  const auto nvml = open_nvml(TUFT_FAKE_GPUS "libnvidia-ml.so.1");
  ASSERT_NE(nvml, nullptr);
  ASSERT_EQ(nvml->gpus().size(), 2u);
  EXPECT_EQ(nvml->gpus()[0].name, "Fake H1");
  EXPECT_EQ(nvml->gpus()[0].vendor, "NVIDIA");
  EXPECT_EQ(nvml->gpus()[0].runtime, "CUDA");
  EXPECT_EQ(nvml->gpus()[0].runtime_version, "12.8");
  EXPECT_EQ(nvml->gpus()[1].id, "GPU-two");
  EXPECT_EQ(nvml->gpus()[1].driver_version, "999.1");
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

TEST(AmdSmi, TwoSocketsThenTheValuesOfEachGpu) {
  for (const char* library : {TUFT_FAKE_GPUS "amd_smi_26.so", TUFT_FAKE_GPUS "amd_smi_24.so"}) {
    SCOPED_TRACE(library);
    const auto amd = open_amd_smi(library);
    ASSERT_NE(amd, nullptr);
    ASSERT_EQ(amd->gpus().size(), 2u);
    EXPECT_EQ(amd->gpus()[0].name, "Fake M1");
    EXPECT_EQ(amd->gpus()[1].name, "Fake M2");
    EXPECT_EQ(amd->gpus()[0].id, "ffff-one");
    EXPECT_EQ(amd->gpus()[1].id, "") << "the library does not tell";
    EXPECT_EQ(amd->gpus()[0].vendor, "AMD");
    EXPECT_EQ(amd->gpus()[0].driver_version, "6.12.12");
    EXPECT_EQ(amd->gpus()[0].runtime, "ROCm");
    const auto use = amd->read();
    ASSERT_EQ(use.size(), 2u);
    EXPECT_DOUBLE_EQ(*use[0].utilization, 0.4);
    EXPECT_DOUBLE_EQ(*use[0].memory_used, 16e9);
    EXPECT_DOUBLE_EQ(*use[0].memory_total, 64e9);
    EXPECT_DOUBLE_EQ(*use[0].power_watts, 300);
    EXPECT_DOUBLE_EQ(*use[0].energy_joules, 30.5);
    EXPECT_DOUBLE_EQ(*use[0].temperature_celsius, 55);
    EXPECT_FALSE(use[1].utilization.has_value()) << "a mark for 'not reported' is no utilization";
    EXPECT_DOUBLE_EQ(*use[1].memory_used, 1e9);
    EXPECT_DOUBLE_EQ(*use[1].power_watts, 90) << "the average, because the power now is not reported";
    EXPECT_FALSE(use[1].energy_joules.has_value());
    EXPECT_DOUBLE_EQ(*use[1].temperature_celsius, 71) << "of the hottest place";
  }
}

TEST(AmdSmi, VersionWithOtherStructuresThenNone) {
  EXPECT_EQ(open_amd_smi(TUFT_FAKE_GPUS "amd_smi_23.so"), nullptr);
}

TEST(AmdSmi, FunctionsMissingThenTheirValuesAreAbsent) {
  const auto amd = open_amd_smi(TUFT_FAKE_GPUS "amd_smi_bare.so");
  ASSERT_NE(amd, nullptr);
  EXPECT_EQ(amd->gpus().at(0).name, "");
  EXPECT_EQ(amd->gpus().at(0).driver_version, "");
  const auto use = amd->read();
  EXPECT_DOUBLE_EQ(*use.at(0).utilization, 0.4);
  EXPECT_DOUBLE_EQ(*use.at(0).memory_used, 16e9);
  EXPECT_FALSE(use.at(0).power_watts.has_value());
  EXPECT_FALSE(use.at(0).energy_joules.has_value());
  EXPECT_FALSE(use.at(0).temperature_celsius.has_value());
}

TEST(RocmSmi, TwoGpusThenTheValuesOfEach) {
  const auto rocm = open_rocm_smi(TUFT_FAKE_GPUS "rocm_smi_new.so");
  ASSERT_NE(rocm, nullptr);
  ASSERT_EQ(rocm->gpus().size(), 2u);
  EXPECT_EQ(rocm->gpus()[1].name, "Fake V2");
  EXPECT_EQ(rocm->gpus()[0].id, "GPU-0000000000abcdef");
  EXPECT_EQ(rocm->gpus()[1].id, "");
  EXPECT_EQ(rocm->gpus()[0].vendor, "AMD");
  EXPECT_EQ(rocm->gpus()[0].driver_version, "5.18.13");
  const auto use = rocm->read();
  ASSERT_EQ(use.size(), 2u);
  EXPECT_DOUBLE_EQ(*use[0].utilization, 0.3);
  EXPECT_DOUBLE_EQ(*use[0].memory_used, 3e9);
  EXPECT_DOUBLE_EQ(*use[0].memory_total, 32e9);
  EXPECT_DOUBLE_EQ(*use[0].power_watts, 210.5);
  EXPECT_DOUBLE_EQ(*use[0].energy_joules, 15.25);
  EXPECT_DOUBLE_EQ(*use[0].temperature_celsius, 48.5);
  EXPECT_FALSE(use[1].utilization.has_value());
  EXPECT_FALSE(use[1].power_watts.has_value());
  EXPECT_DOUBLE_EQ(*use[1].temperature_celsius, 66) << "of the hottest place";
}

TEST(RocmSmi, LibraryBeforeRocm6ThenTheAveragePower) {
  const auto rocm = open_rocm_smi(TUFT_FAKE_GPUS "rocm_smi_old.so");
  ASSERT_NE(rocm, nullptr);
  EXPECT_DOUBLE_EQ(*rocm->read().at(0).power_watts, 180);
}

TEST(JoinedGpus, SeveralVendorsThenOneListWithUniqueIds) {
  std::vector<std::unique_ptr<GpuLibrary>> libraries;
  libraries.push_back(open_nvml(TUFT_FAKE_GPUS "libnvidia-ml.so.1"));
  libraries.push_back(nullptr);
  libraries.push_back(open_amd_smi(TUFT_FAKE_GPUS "amd_smi_26.so"));
  libraries.push_back(open_rocm_smi(TUFT_FAKE_GPUS "rocm_smi_new.so"));
  const auto all = join_gpu_libraries(std::move(libraries));
  ASSERT_NE(all, nullptr);
  std::vector<std::string> ids;
  for (const GpuInfo& gpu : all->gpus()) ids.push_back(gpu.id);
  EXPECT_EQ(ids,
            (std::vector<std::string>{"GPU-one", "GPU-two", "ffff-one", "AMD-3", "GPU-0000000000abcdef", "AMD-5"}));
  const auto use = all->read();
  ASSERT_EQ(use.size(), 6u);
  EXPECT_DOUBLE_EQ(*use[0].memory_used, 2e9);
  EXPECT_DOUBLE_EQ(*use[2].memory_used, 16e9);
  EXPECT_DOUBLE_EQ(*use[4].memory_used, 3e9);
}

TEST(JoinedGpus, NoLibraryThenNone) {
  EXPECT_EQ(join_gpu_libraries({}), nullptr);
}

// In a process of its own, because a library that is loaded once is found by every later test.
class OpenGpusDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (open_gpus() != nullptr) GTEST_SKIP() << "this machine has a GPU, or another test has loaded a fake one";
  }
};

[[noreturn]] void print_gpus_and_exit() {
  std::string text;
  if (const auto all = open_gpus()) {
    for (const GpuInfo& gpu : all->gpus()) text += gpu.name + " " + gpu.runtime + " " + gpu.runtime_version + ", ";
  }
  std::fputs(text.c_str(), stderr);
  std::exit(0);
}

TEST_F(OpenGpusDeathTest, NvidiaAndAmdThenBothAndEachOnce) {
  EXPECT_EXIT(
      {
        for (const char* name : {"libnvidia-ml.so.1", "libamd_smi.so.26", "librocm_smi64.so.7", "librocm-core.so.1"})
          load_fake(name);
        print_gpus_and_exit();
      },
      ::testing::ExitedWithCode(0), "^Fake H1 CUDA 12.8, Fake K1 CUDA 12.8, Fake M1 ROCm 6.4.1, Fake M2 ROCm 6.4.1, $");
}

TEST_F(OpenGpusDeathTest, OnlyRocmSmiThenItsGpus) {
  EXPECT_EXIT(
      {
        load_fake("librocm_smi64.so.7");
        print_gpus_and_exit();
      },
      ::testing::ExitedWithCode(0), "^Fake V1 ROCm , Fake V2 ROCm , $");
}

}  // namespace
}  // namespace tuft::telemetry::internal
