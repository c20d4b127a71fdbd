// An AMD SMI for tests: two sockets with a GPU each; the second GPU reports few values. FAKE_VERSION is the first
// number of the version, which decides the layout of the structures: 23, 24 or 26. With FAKE_BARE, the functions that
// tuft can do without are missing.
#include <cstdint>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 2;
constexpr int kNotFound = 31;
constexpr int kNotInitialized = 32;
bool initialized = false;

int first_socket = 0;
int second_socket = 0;
int first = 0;
int second = 0;

struct Version {
#if FAKE_VERSION < 26
  uint32_t year;
#endif
  uint32_t major;
  uint32_t minor;
  uint32_t release;
  const char* build;
};

struct Activity {
  uint32_t graphics;
  uint32_t memory_controller;
  uint32_t media;
  uint32_t reserved[13];
};

// Writes up to `*count` handles, or the number of handles if there is no room for any.
int put_handles(uint32_t* count, void** out, void* one, void* other) {
  const uint32_t all = other == nullptr ? 1 : 2;
  if (out != nullptr) {
    if (*count > 0) out[0] = one;
    if (*count > 1 && other != nullptr) out[1] = other;
  }
  if (out == nullptr || *count > all) *count = all;
  return kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): AMD SMI's names
EXPORTED int amdsmi_init(uint64_t flags) {
  initialized = flags == 2;  // GPUs only
  return initialized ? kSuccess : kNotSupported;
}
EXPORTED int amdsmi_get_lib_version(Version* version) {
  if (!initialized) return kNotInitialized;
  std::memset(version, 0, sizeof *version);
#if FAKE_VERSION < 26
  version->year = FAKE_VERSION;
  version->major = 7;
#else
  version->major = FAKE_VERSION;
#endif
  version->build = "fake";
  return kSuccess;
}
EXPORTED int amdsmi_get_socket_handles(uint32_t* count, void** sockets) {
  if (!initialized) return kNotInitialized;
  return put_handles(count, sockets, &first_socket, &second_socket);
}
EXPORTED int amdsmi_get_processor_handles(void* socket, uint32_t* count, void** gpus) {
  if (socket != &first_socket && socket != &second_socket) return kNotFound;
  return put_handles(count, gpus, socket == &first_socket ? &first : &second, nullptr);
}
EXPORTED int amdsmi_get_gpu_activity(void* gpu, Activity* activity) {
  std::memset(activity, 0xff, sizeof *activity);  // the mark for "not reported"
  if (gpu == &first) activity->graphics = 40;
  return kSuccess;
}
EXPORTED int amdsmi_get_gpu_memory_total(void*, int type, uint64_t* bytes) {
  *bytes = 64'000'000'000;
  return type == 0 ? kSuccess : kNotSupported;
}
EXPORTED int amdsmi_get_gpu_memory_usage(void* gpu, int type, uint64_t* bytes) {
  *bytes = gpu == &first ? 16'000'000'000 : 1'000'000'000;
  return type == 0 ? kSuccess : kNotSupported;
}

#ifndef FAKE_BARE
namespace {

constexpr int kTextBytes = FAKE_VERSION >= 26 ? 256 : 64;

struct Asic {
  char market_name[kTextBytes];
  uint32_t vendor_id;
  char rest[1024];
};

struct Driver {
  char version[kTextBytes];
  char date[kTextBytes];
  char name[kTextBytes];
};

struct Power {
#if FAKE_VERSION >= 26
  uint64_t socket;
  uint32_t current;
  uint32_t average;
  uint64_t voltages[3];
  uint32_t limit;
  uint64_t reserved[18];
#else
  uint32_t current;
  uint32_t average;
  uint32_t voltages[3];
  uint32_t limit;
  uint32_t reserved[11];
#endif
};

}  // namespace

EXPORTED int amdsmi_get_temp_metric(void* gpu, int sensor, int metric, int64_t* celsius) {
  *celsius = gpu == &first ? 55 : 71;
  return metric == 0 && sensor == (gpu == &first ? 0 : 1) ? kSuccess : kNotSupported;
}
EXPORTED int amdsmi_get_power_info(void* gpu, Power* power) {
  std::memset(power, 0xff, sizeof *power);
  // The first GPU reports its power now, the second an average.
  (gpu == &first ? power->current : power->average) = gpu == &first ? 300 : 90;
  return kSuccess;
}
EXPORTED int amdsmi_get_energy_count(void* gpu, uint64_t* count, float* microjoules, uint64_t* time) {
  *count = 2'000'000;
  *microjoules = 15.25F;
  *time = 1;
  return gpu == &first ? kSuccess : kNotSupported;
}
EXPORTED int amdsmi_get_gpu_asic_info(void* gpu, Asic* asic) {
  std::memset(asic, 0, sizeof *asic);
  std::strcpy(asic->market_name, gpu == &first ? "Fake M1" : "Fake M2");
  asic->vendor_id = 0x41414141;
  return kSuccess;
}
EXPORTED int amdsmi_get_gpu_device_uuid(void* gpu, unsigned* length, char* uuid) {
  if (*length < 38 || gpu != &first) return kNotSupported;
  std::strcpy(uuid, "ffff-one");
  *length = 8;
  return kSuccess;
}
EXPORTED int amdsmi_get_gpu_driver_info(void*, Driver* driver) {
  std::memset(driver, 0, sizeof *driver);
  std::strcpy(driver->version, "6.12.12");
  std::strcpy(driver->name, "amdgpu");
  return kSuccess;
}
#endif
// NOLINTEND(readability-identifier-naming)
