// The API keys: authorized_users of the configuration, and authorized_users_file, which is read again while the server
// runs. Reads the disk. Confined to one thread at a time.
//
// The file may be written in place, so a half-written file must be ignored: a change is accepted when two consecutive
// looks find the same file, and only if the file ends with a newline and did not change while it was read. A file that
// two consecutive looks do not find has been removed, and its keys are revoked; a rename() over it leaves no such gap.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "config/config.h"

namespace tuft::app {

class KeyFile {
 public:
  explicit KeyFile(const config::ServerConfig& config) : config_(config) {}

  // Reads the file and returns all users; for a key in both places the configuration decides. Logs the file's warnings.
  // Returns an error if the file cannot be used.
  Result<std::map<std::string, std::string>> read();

  using Use = std::function<void(std::map<std::string, std::string>)>;
  // Reads the file again, and calls `use` with all users. If it cannot be used, the former keys stay. Logs either.
  void reload(const Use& use);
  // Does that if the file has changed. If it was removed, its keys are revoked: `use` gets those of the configuration.
  // To be called about once a second.
  void reload_changed(const Use& use);

  // kChanged: the file should be read again. kGone: the file was removed. Each is reported once.
  enum class Look : uint8_t { kSame, kChanged, kGone };
  // Checks the file for changes. To be called about once a second.
  Look look();

 private:
  struct Stamp {
    ino_t inode = 0;
    off_t size = -1;  // -1: there is no file
    time_t seconds = 0;
    long nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };

  Stamp stamp() const;

  const config::ServerConfig& config_;
  Stamp read_;
  Stamp seen_;  // at the last look() or read()
};

}  // namespace tuft::app
