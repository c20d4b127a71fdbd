#include "app/tuft/runtime_directory.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "base/file.h"

namespace tuft::app {
namespace {

constexpr std::string_view kPrefix = "tuft.";
// sockaddr_un holds 107 bytes, of which the name of the socket needs the rest.
constexpr size_t kPathMax = 70;

std::vector<std::filesystem::path> candidates(const std::filesystem::path& home) {
  std::vector<std::filesystem::path> bases;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/')
    bases.emplace_back(runtime);
  bases.push_back(home / "run");
  if (const char* temporary = std::getenv("TMPDIR"); temporary != nullptr && *temporary == '/')
    bases.emplace_back(temporary);
  bases.emplace_back("/tmp");
  return bases;
}

// Returns true for "tuft.<pid>.XXXXXX" of a process that is not here any more. One that has the id of this process is
// not either: in a container, each server has the same.
bool is_stale(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return false;
  pid_t pid = 0;
  const char* const begin = name.data() + kPrefix.size();
  const auto [end, status] = std::from_chars(begin, name.data() + name.size(), pid);
  struct stat info = {};
  if (status != std::errc() || end == name.data() + name.size() || *end != '.' || pid <= 0) return false;
  const bool is_gone = pid == ::getpid() || (::kill(pid, 0) != 0 && errno == ESRCH);
  return is_gone && ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

void remove_stale(const std::filesystem::path& base) {
  std::error_code ignored;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(base, ignored)) {
    if (is_stale(entry.path())) stale.push_back(entry.path());
  }
  for (const auto& path : stale) {
    const int lock = lock_directory(path);
    if (lock < 0) continue;  // of another container, whose processes are not to be seen here
    std::filesystem::remove_all(path, ignored);
    ::close(lock);
  }
}

}  // namespace

Result<std::unique_ptr<RuntimeDirectory>> RuntimeDirectory::create(const std::filesystem::path& home) {
  std::string reason;
  for (const std::filesystem::path& base : candidates(home)) {
    std::string path = (base / (std::string(kPrefix) + std::to_string(::getpid()) + ".XXXXXX")).string();
    if (path.size() > kPathMax) continue;
    std::error_code ignored;
    std::filesystem::create_directories(base, ignored);
    remove_stale(base);
    const bool is_made = ::mkdtemp(path.data()) != nullptr;
    const int lock = is_made ? lock_directory(path) : -1;
    if (lock >= 0) return std::unique_ptr<RuntimeDirectory>(new RuntimeDirectory(path, lock));
    reason = base.string() + ": " + (is_made ? "directories cannot be locked there" : std::strerror(errno));
    if (is_made) std::filesystem::remove(path, ignored);
  }
  return internal_error("cannot create a directory for the workers' sockets (" + reason +
                            "); set XDG_RUNTIME_DIR or TMPDIR to a short path that you own",
                        "runtime_directory");
}

RuntimeDirectory::~RuntimeDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  ::close(lock_);
}

}  // namespace tuft::app
