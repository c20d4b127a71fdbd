// Result<T> holds a value or an Error. It is a subset of std::expected<T, Error> of C++23.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/error.h"

namespace tuft {

template <typename T>
class [[nodiscard]] Result {
 public:
  using Value = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return check_ok(), std::get<0>(state_); }
  const T& value() const& { return check_ok(), std::get<0>(state_); }
  T&& value() && { return check_ok(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return check_error(), std::get<1>(state_); }
  Error&& error() && { return check_error(), std::get<1>(std::move(state_)); }

 private:
  void check_ok() const { TUFT_CHECK(ok(), std::get<1>(state_).message); }
  void check_error() const { TUFT_CHECK(!ok(), "Result::error() on a value"); }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using Value = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& { return check_error(), error_; }
  Error&& error() && { return check_error(), std::move(error_); }

 private:
  void check_error() const { TUFT_CHECK(!ok_, "Result::error() on a value"); }

  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace tuft

// Returns the error of `expr` from the calling function.
#define TUFT_TRY(expr)                                                                                   \
  do {                                                                                                   \
    if (auto tuft_try_result = (expr); !tuft_try_result.ok()) return std::move(tuft_try_result).error(); \
  } while (0)

#define TUFT_CONCAT_INNER(a, b) a##b
#define TUFT_CONCAT(a, b) TUFT_CONCAT_INNER(a, b)

// TUFT_ASSIGN(auto x, f()) assigns the value of f() to x, or returns the error of f() from the calling function.
#define TUFT_ASSIGN(declaration, expr)                                                                          \
  auto TUFT_CONCAT(tuft_assign_, __LINE__) = (expr);                                                            \
  if (!TUFT_CONCAT(tuft_assign_, __LINE__).ok()) return std::move(TUFT_CONCAT(tuft_assign_, __LINE__)).error(); \
  declaration = std::move(TUFT_CONCAT(tuft_assign_, __LINE__)).value()
