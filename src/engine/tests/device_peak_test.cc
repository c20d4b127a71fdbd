#include "engine/device_peak.h"

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

TEST(DevicePeak, DriverNamesGiveTheDensePeak) {
  EXPECT_EQ(known_peak_flops("NVIDIA B200", PeakType::kBf16), 2250e12);
  EXPECT_EQ(known_peak_flops("NVIDIA GB200", PeakType::kBf16), 2500e12);
  EXPECT_EQ(known_peak_flops("NVIDIA B300 SXM6 AC", PeakType::kF32), 75e12);
  EXPECT_EQ(known_peak_flops("NVIDIA H100 80GB HBM3", PeakType::kBf16), 989.4e12);
  EXPECT_EQ(known_peak_flops("NVIDIA H100 PCIe", PeakType::kBf16), 756e12);
  EXPECT_EQ(known_peak_flops("NVIDIA H200", PeakType::kF32), 66.9e12);
  EXPECT_EQ(known_peak_flops("NVIDIA A100-SXM4-80GB", PeakType::kBf16), 311.9e12);
  EXPECT_EQ(known_peak_flops("NVIDIA A10", PeakType::kBf16), 125e12);
  EXPECT_EQ(known_peak_flops("NVIDIA L40S", PeakType::kBf16), 362e12);
}

TEST(DevicePeak, UnknownDeviceOrPartOfOneGivesZero) {
  EXPECT_EQ(known_peak_flops("NVIDIA A10G", PeakType::kBf16), 0);
  EXPECT_EQ(known_peak_flops("NVIDIA A100-SXM4-80GB MIG 1g.10gb", PeakType::kBf16), 0);
  EXPECT_EQ(known_peak_flops("NVIDIA H100 of tomorrow", PeakType::kBf16), 0);
  EXPECT_EQ(known_peak_flops("", PeakType::kF32), 0);
}

TEST(DevicePeak, UnknownDeviceThenTheLargestIsAssumed) {
  for (const char* unknown : {"NVIDIA A10G", "Tesla T4", "NVIDIA H100 of tomorrow", ""}) {
    EXPECT_EQ(assumed_peak_flops(unknown, PeakType::kBf16), 2500e12) << unknown;
    EXPECT_EQ(assumed_peak_flops(unknown, PeakType::kF32), 91.6e12) << unknown;
  }
  EXPECT_EQ(assumed_peak_flops("NVIDIA A100-SXM4-80GB MIG 1g.10gb", PeakType::kBf16), 311.9e12) << "of the whole";
  EXPECT_EQ(assumed_peak_flops("NVIDIA L40S", PeakType::kBf16), 362e12);
  EXPECT_EQ(assumed_peak_flops("NVIDIA B200", PeakType::kBf16), 2250e12);
}

}  // namespace
}  // namespace tuft::engine
