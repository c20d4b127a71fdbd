// Who may use the server: authorized_users of the configuration and, in a file that is read again while the server
// runs, authorized_users_file. Reads the disk; for the main thread.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "config/config.h"

namespace tuft::app {

class KeyFile {
 public:
  explicit KeyFile(const config::ServerConfig& config) : config_(config) {}

  // All users; logs the file's warnings. Where a key is in both, the configuration's word holds.
  Result<std::map<std::string, std::string>> read();
  // Since it was last read.
  bool has_changed() const;

 private:
  struct Stamp {
    ino_t inode = 0;
    off_t size = -1;  // there is no file
    time_t seconds = 0;
    long nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };

  Stamp stamp() const;

  const config::ServerConfig& config_;
  Stamp read_;
};

}  // namespace tuft::app
