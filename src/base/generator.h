// A coroutine that produces values one by one, when they are asked for (std::generator of C++23, without its
// conversions).
//
//   Generator<int> count() { for (int i = 0;; ++i) co_yield i; }
//   Generator<int> numbers = count();
//   while (numbers.next()) use(numbers.value());
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace tuft {

// Move-only; used by one thread at a time. Destroying it destroys the coroutine where it stands.
template <typename T>
class Generator {
 public:
  struct promise_type {  // NOLINT(readability-identifier-naming): the name that the standard asks for
    Generator get_return_object() { return Generator(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(T next) {
      value = std::move(next);
      return {};
    }
    void return_void() {}
    void unhandled_exception() { throw; }

    std::optional<T> value;
  };

  Generator(Generator&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Generator& operator=(Generator&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Generator() {
    if (handle_) handle_.destroy();
  }

  // Runs to the next value. Returns false at the end. Throws what the coroutine throws, which ends it.
  bool next() {
    if (handle_.done()) return false;
    handle_.promise().value.reset();
    handle_.resume();
    return !handle_.done();
  }
  // Requires that next() has returned true.
  T& value() { return *handle_.promise().value; }

 private:
  explicit Generator(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace tuft
