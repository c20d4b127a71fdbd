#include "engine/device_peak.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tuft::engine {
namespace {

struct Device {
  std::string_view model;
  std::string_view variant;  // "": any other
  double f32;
  double bf16;
};

// From NVIDIA's data sheets; those of Blackwell are a GPU's part of the HGX and NVL72 systems. The first match counts.
constexpr std::array<Device, 15> kDevices = {{
    {"B200", "", 75e12, 2250e12},
    {"GB200", "", 80e12, 2500e12},
    {"B300", "", 75e12, 2250e12},
    {"GB300", "", 80e12, 2500e12},
    {"H100", "PCIe", 51.2e12, 756e12},
    {"H100", "NVL", 60e12, 835e12},
    {"H100", "HBM3", 66.9e12, 989.4e12},
    {"H200", "NVL", 60e12, 835e12},
    {"H200", "", 66.9e12, 989.4e12},
    {"GH200", "", 66.9e12, 989.4e12},
    {"A100", "", 19.5e12, 311.9e12},
    {"L40S", "", 91.6e12, 362e12},
    {"L40", "", 90.5e12, 181e12},
    {"L4", "", 30.3e12, 121e12},
    {"A10", "", 31.2e12, 125e12},
}};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" -"), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool has(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

double peak_of(const Device& device, PeakType type) {
  return type == PeakType::kF32 ? device.f32 : device.bf16;
}

// Returns 0 for an unknown device.
double peak_of_whole(const std::vector<std::string_view>& words, PeakType type) {
  for (const Device& device : kDevices) {
    if (!has(words, device.model) || (!device.variant.empty() && !has(words, device.variant))) continue;
    return peak_of(device, type);
  }
  return 0;
}

}  // namespace

double known_peak_flops(std::string_view name, PeakType type) {
  const std::vector<std::string_view> words = words_of(name);
  return has(words, "MIG") ? 0 : peak_of_whole(words, type);
}

double assumed_peak_flops(std::string_view name, PeakType type) {
  if (const double whole = peak_of_whole(words_of(name), type); whole > 0) return whole;
  double largest = 0;
  for (const Device& device : kDevices) largest = std::max(largest, peak_of(device, type));
  return largest;
}

}  // namespace tuft::engine
