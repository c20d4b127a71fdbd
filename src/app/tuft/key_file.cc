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

KeyFile::Look KeyFile::look() {
  if (config_.authorized_users_file.empty()) return Look::kSame;
  const Stamp now = stamp();
  const bool settled = std::exchange(seen_, now) == now;
  if (now == read_ || !settled) return Look::kSame;
  if (now != Stamp()) return Look::kChanged;
  read_ = now;
  return Look::kGone;
}

Result<std::map<std::string, std::string>> KeyFile::read() {
  if (config_.authorized_users_file.empty()) return config_.authorized_users;
  const Stamp before = stamp();
  Result<config::UsersFile> file = config::read_users_file(config_.authorized_users_file);
  if (stamp() != before) return unavailable("authorized_users_file changed while it was read; it is read again soon");
  // Remembered even if the file is wrong, so that an error is reported once. look() reports a missing file.
  if (before != Stamp()) seen_ = read_ = before;
  if (!file.ok()) return std::move(file).error();
  for (const std::string& warning : file->warnings) telemetry::log_warning("config.warning", warning);
  std::map<std::string, std::string> users = config_.authorized_users;
  users.merge(file->users);
  return users;
}

void KeyFile::reload(const Use& use) {
  if (config_.authorized_users_file.empty()) return;
  auto users = read();
  if (!users.ok()) {
    telemetry::log_error("keys.reload_failed", users.error().message + "; the former keys stay in use");
    return;
  }
  const size_t count = users->size();
  use(std::move(users).value());
  telemetry::log_info("keys.reloaded", "authorized_users_file was read again", {{"tuft.keys", count}});
}

void KeyFile::reload_changed(const Use& use) {
  const Look found = look();
  if (found == Look::kChanged) reload(use);
  if (found != Look::kGone) return;
  use(config_.authorized_users);
  telemetry::log_error("keys.file_gone",
                       "authorized_users_file is not there any more, so its keys are refused; restore it to accept "
                       "them again");
}

}  // namespace tuft::app
