#include "base/secret_file.h"

#include <sys/stat.h>

namespace tuft {

bool is_open_to_others(const std::filesystem::path& file) {
  struct stat info = {};
  return ::stat(file.c_str(), &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0;
}

}  // namespace tuft
