#include "app/tuft/key_file.h"

#include <sys/stat.h>
#include <utility>

#include "telemetry/log.h"

namespace tuft::app {

KeyFile::Stamp KeyFile::stamp() const {
  struct stat info = {};
  if (::stat(config_.authorized_users_file.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

bool KeyFile::has_changed() const {
  return !config_.authorized_users_file.empty() && stamp() != read_;
}

Result<std::map<std::string, std::string>> KeyFile::read() {
  if (config_.authorized_users_file.empty()) return config_.authorized_users;
  // Before the file is read, so that a change meanwhile is seen next time.
  read_ = stamp();
  TUFT_ASSIGN(config::UsersFile file, config::read_users_file(config_.authorized_users_file));
  for (const std::string& warning : file.warnings) telemetry::log_warning("config.warning", warning);
  std::map<std::string, std::string> users = config_.authorized_users;
  users.merge(file.users);
  return users;
}

}  // namespace tuft::app
