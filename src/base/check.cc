#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tuft {

void check_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "fatal: %s:%d: %s is false: %.*s\n", file, line, condition, static_cast<int>(message.size()),
               message.data());
  std::abort();
}

}  // namespace tuft
