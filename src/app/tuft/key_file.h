// Who may use the server: authorized_users of the configuration and, in a file that is read again while the server
// runs, authorized_users_file. Reads the disk; for the main thread.
//
// The file may be written in place, so what is found half-written must not count: a change counts once two looks in a
// row found the same file, and a file counts that ends with a newline and stayed the same while it was read. A rename
// over it leaves no moment without a file, so one that two looks in a row did not find was taken away, and with it its
// keys.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "config/config.h"

namespace tuft::app {

class KeyFile {
 public:
  explicit KeyFile(const config::ServerConfig& config) : config_(config) {}

  // All users; logs the file's warnings. Where a key is in both, the configuration's word holds. An error says why the
  // file does not count as it is.
  Result<std::map<std::string, std::string>> read();

  // kChanged: read() it. kGone: it was taken away; its users are none any more. Each is said once.
  enum class Look : uint8_t { kSame, kChanged, kGone };
  // To be called about once a second.
  Look look();

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
  Stamp seen_;  // by the last look, or read
};

}  // namespace tuft::app
