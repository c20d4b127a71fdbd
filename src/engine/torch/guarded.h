// guarded(), has_memory_for(): turn the exceptions of libtorch into results. Internal.
#pragma once

#include <new>
#include <string>
#include <utility>

#include <c10/util/Exception.h>

#include "base/error.h"
#include "base/result.h"
#include "engine/back_end/checks.h"

namespace tuft::engine::torch {

// `text` may have several lines; only the first is kept, because the others are addresses.
inline Error torch_failure(const char* what, std::string text) {
  text = text.substr(0, text.find('\n'));
  return internal_error(std::string("libtorch failed at ") + what + ": " + text);
}

// Calls function(). Returns false if it threw because there was no memory.
template <typename Function>
bool has_memory_for(Function&& function) {
  try {
    std::forward<Function>(function)();
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Returns function(), or the error for the exception that it throws.
template <typename Function>
auto guarded(const char* what, Function&& function) -> decltype(function()) {
  try {
    return std::forward<Function>(function)();
  } catch (const c10::OutOfMemoryError&) {
    return out_of_memory(what);
  } catch (const std::bad_alloc&) {
    return out_of_memory(what);
  } catch (const c10::Error& error) {
    return torch_failure(what, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return torch_failure(what, error.what());
  }
}

}  // namespace tuft::engine::torch
