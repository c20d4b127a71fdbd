// The directory of the sockets between the server and its workers.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include "base/result.h"

namespace tuft::app {

// The directory has mode 0700 and belongs to this process; the destructor removes it.
class RuntimeDirectory {
 public:
  // Creates it below $XDG_RUNTIME_DIR, else below `home`/run; if these paths are too long for a unix socket, below
  // $TMPDIR or /tmp. Removes the directories of servers that were killed.
  static Result<std::unique_ptr<RuntimeDirectory>> create(const std::filesystem::path& home);
  ~RuntimeDirectory();
  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  RuntimeDirectory(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  const std::filesystem::path path_;
  const int lock_;  // the open directory, locked as long as this process uses it
};

}  // namespace tuft::app
