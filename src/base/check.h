// TUFT_CHECK: an invariant of the program. Prints where and why, then aborts, in release too. Never reachable by
// anything a user sends.
#pragma once

#include <string_view>

namespace tuft {

[[noreturn]] void check_failed(const char* condition, const char* file, int line, std::string_view message);

}  // namespace tuft

#define TUFT_CHECK(condition, message)                                 \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::tuft::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (0)
