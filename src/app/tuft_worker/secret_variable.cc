#include "app/tuft_worker/secret_variable.h"

#include <cstdlib>
#include <cstring>

namespace tuft::app {

std::string take_variable(const char* name) {
  char* const value = std::getenv(name);
  if (value == nullptr) return {};
  std::string text = value;
  // /proc shows the initial environment as long as the process runs, so overwrite the value.
  std::memset(value, 0, std::strlen(value));
  ::unsetenv(name);
  return text;
}

}  // namespace tuft::app
