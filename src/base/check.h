// TUFT_CHECK checks an invariant of the program: if it does not hold, it prints the place and the reason and aborts, in
// release builds too. Input from a user must never reach a failing check.
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
