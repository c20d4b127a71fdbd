// A ROCm SMI for tests: two GPUs; the second reports few values. With FAKE_OLD it lacks the functions that ROCm 6
// added.
#include <cstdint>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kSuccess = 0;
constexpr int kNotSupported = 2;
}  // namespace

// NOLINTBEGIN(readability-identifier-naming): ROCm SMI's names
EXPORTED int rsmi_init(uint64_t flags) {
  return flags == 0 ? kSuccess : kNotSupported;
}
EXPORTED int rsmi_num_monitor_devices(uint32_t* count) {
  *count = 2;
  return kSuccess;
}
EXPORTED int rsmi_dev_busy_percent_get(uint32_t gpu, uint32_t* percent) {
  *percent = 30;
  return gpu == 0 ? kSuccess : kNotSupported;
}
EXPORTED int rsmi_dev_memory_total_get(uint32_t, int type, uint64_t* bytes) {
  *bytes = 32'000'000'000;
  return type == 0 ? kSuccess : kNotSupported;
}
EXPORTED int rsmi_dev_memory_usage_get(uint32_t gpu, int type, uint64_t* bytes) {
  *bytes = gpu == 0 ? 3'000'000'000 : 0;
  return type == 0 ? kSuccess : kNotSupported;
}
#ifndef FAKE_OLD
EXPORTED int rsmi_dev_power_get(uint32_t gpu, uint64_t* microwatts, int* type) {
  *microwatts = 210'500'000;
  *type = 1;
  return gpu == 0 ? kSuccess : kNotSupported;
}
#endif
EXPORTED int rsmi_dev_power_ave_get(uint32_t gpu, uint32_t sensor, uint64_t* microwatts) {
  *microwatts = 180'000'000;
  return gpu == 0 && sensor == 0 ? kSuccess : kNotSupported;
}
EXPORTED int rsmi_dev_energy_count_get(uint32_t gpu, uint64_t* count, float* microjoules, uint64_t* time) {
  *count = 1'000'000;
  *microjoules = 15.25F;
  *time = 1;
  return gpu == 0 ? kSuccess : kNotSupported;
}
EXPORTED int rsmi_dev_temp_metric_get(uint32_t gpu, uint32_t sensor, int metric, int64_t* thousandths) {
  *thousandths = gpu == 0 ? 48'500 : 66'000;
  return metric == 0 && sensor == gpu ? kSuccess : kNotSupported;
}
EXPORTED int rsmi_dev_name_get(uint32_t gpu, char* name, size_t length) {
  std::strncpy(name, gpu == 0 ? "Fake V1" : "Fake V2", length);
  return kSuccess;
}
EXPORTED int rsmi_dev_unique_id_get(uint32_t gpu, uint64_t* id) {
  *id = 0xabcdef;
  return gpu == 0 ? kSuccess : kNotSupported;
}
EXPORTED int rsmi_version_str_get(int component, char* version, uint32_t length) {
  std::strncpy(version, "5.18.13", length);
  return component == 0 ? kSuccess : kNotSupported;
}
// NOLINTEND(readability-identifier-naming)
