// Libraries of tests that stand for those of the makers of GPUs.
#pragma once

#include <dlfcn.h>
#include <string>

#include <gtest/gtest.h>

namespace tuft::telemetry {

// The library has the soname of a real one, so dlopen() of that name finds this one from then on.
inline void load_fake(const char* library) {
  const std::string path = std::string(TUFT_FAKE_GPUS) + library;
  ASSERT_NE(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
}

inline void load_fake_nvml() {
  load_fake("libnvidia-ml.so.1");
}

}  // namespace tuft::telemetry
