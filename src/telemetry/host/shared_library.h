// A library that is loaded at run time. Internal to telemetry.
#pragma once

#include <dlfcn.h>

namespace tuft::telemetry::internal {

// It is never unloaded, because the libraries of GPU vendors keep threads of their own. A library that could not be
// loaded has no function.
class SharedLibrary {
 public:
  enum class If : bool { kAny, kAlreadyLoaded };
  explicit SharedLibrary(const char* name, If condition = If::kAny)
      : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL | (condition == If::kAlreadyLoaded ? RTLD_NOLOAD : 0))) {}

  explicit operator bool() const { return handle_ != nullptr; }

  // Returns false and sets null if there is no such function.
  template <typename Function>
  bool load(const char* name, Function*& function) const {
    function = handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
    return function != nullptr;
  }

 private:
  void* const handle_;
};

}  // namespace tuft::telemetry::internal
