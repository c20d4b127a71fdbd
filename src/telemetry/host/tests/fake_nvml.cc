// A libnvidia-ml.so.1 for tests: two GPUs, the second with an old driver that reports few values.
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
int first = 0;
int second = 1;

int put_text(char* out, unsigned size, const char* text) {
  std::strncpy(out, text, size);
  return kSuccess;
}
}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVML's names
EXPORTED int nvmlInit_v2() {
  return kSuccess;
}
EXPORTED int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kSuccess;
}
EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = index == 0 ? &first : &second;
  return kSuccess;
}
EXPORTED int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  if (device != &first) return kNotSupported;
  rates[0] = 75;
  rates[1] = 10;
  return kSuccess;
}
EXPORTED int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = 8'000'000'000;
  memory[1] = 6'000'000'000;
  memory[2] = device == &first ? 2'000'000'000 : 0;
  return kSuccess;
}
EXPORTED int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 250'500;
  return device == &first ? kSuccess : kNotSupported;
}
EXPORTED int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  *millijoules = 12'345'000;
  return device == &first ? kSuccess : kNotSupported;
}
EXPORTED int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  *celsius = 61;
  return device == &first && sensor == 0 ? kSuccess : kNotSupported;
}
EXPORTED int nvmlDeviceGetName(void* device, char* out, unsigned size) {
  return put_text(out, size, device == &first ? "Fake H1" : "Fake K1");
}
EXPORTED int nvmlDeviceGetUUID(void* device, char* out, unsigned size) {
  return put_text(out, size, device == &first ? "GPU-one" : "GPU-two");
}
EXPORTED int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return put_text(out, size, "999.1");
}
EXPORTED int nvmlSystemGetCudaDriverVersion(int* version) {
  *version = 12'080;
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
