// The directory of the sockets between this server and its workers: 0700, ours alone, gone with us.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"

namespace tuft::app {

class RuntimeDirectory {
 public:
  // Below $XDG_RUNTIME_DIR, else `home`/run, else $TMPDIR or /tmp where those paths are too long for a unix socket.
  // Takes away what killed servers left there.
  static Result<std::unique_ptr<RuntimeDirectory>> create(const std::filesystem::path& home);
  ~RuntimeDirectory();
  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit RuntimeDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace tuft::app
