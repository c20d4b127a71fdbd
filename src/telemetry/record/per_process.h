// Shared state that survives fork(). Internal to telemetry.
#pragma once

#include <atomic>
#include <pthread.h>

namespace tuft::telemetry::internal {

// The only object of its type in a process, made at first use and leaked, because threads use it until the process
// ends. A child of fork() gets a new one, because locks that other threads held in the old one stay locked; then
// T::after_fork() is called in the child, if it exists.
template <typename T>
class PerProcess {
 public:
  static T& get() {
    T* made = object.load(std::memory_order_acquire);
    return made != nullptr ? *made : make();
  }

 private:
  static T& make() {
    T* made = new T;
    T* first = nullptr;
    if (!object.compare_exchange_strong(first, made)) {
      delete made;
      return *first;
    }
    ::pthread_atfork(nullptr, nullptr, &renew);
    return *made;
  }

  static void renew() {
    object.store(new T, std::memory_order_release);
    if constexpr (requires { T::after_fork(); }) T::after_fork();
  }

  static inline constinit std::atomic<T*> object{nullptr};
};

}  // namespace tuft::telemetry::internal
