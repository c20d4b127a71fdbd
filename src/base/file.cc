#include "base/file.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/id.h"

namespace tuft {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

Error system_error(std::string_view what, const std::filesystem::path& path) {
  return file_error(what, path, errno);
}

Status write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

constexpr const char* kTemporaryMark = ".tmp-";

// Returns true for "<prefix><pid>.<rest>" of a process that no longer exists.
bool is_of_dead_process(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  pid_t pid = 0;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool is_ours = status == std::errc() && end != name.data() + name.size() && *end == '.' && pid > 0;
  return is_ours && ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

Error file_error(std::string_view what, const std::filesystem::path& path, int code) {
  std::string message = "cannot " + std::string(what) + " " + path.string() + ": " + std::strerror(code);
  if (code == ENOENT) return not_found(std::move(message), "io");
  if (code == ENOSPC || code == EDQUOT) {
    return {ErrorCode::kResourceExhausted, std::move(message), std::string(kDiskFull)};
  }
  return internal_error(std::move(message), "io");
}

Result<std::string> read_file(const std::filesystem::path& path, size_t size_bytes_max) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error("open", path);
  std::string content;
  std::string buffer(1 << 16, '\0');  // not on the stack, where the bytes of a secret would stay
  while (true) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path);
    if (got == 0) return content;
    content.append(buffer, 0, static_cast<size_t>(got));
    if (content.size() > size_bytes_max) {
      return Error{ErrorCode::kPayloadTooLarge,
                   path.string() + " is larger than " + std::to_string(size_bytes_max) + " bytes", "file_too_large"};
    }
  }
}

ssize_t read_at(int descriptor, uint64_t position, void* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::pread(descriptor, static_cast<char*>(out) + done, size - done, static_cast<off_t>(position + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path temporary =
      path.string() + kTemporaryMark + std::to_string(::getpid()) + "." + random_uuid();
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0) return system_error("create", temporary);
  Status written = write_all(file.get(), content, temporary);
  if (written.ok() && ::fsync(file.get()) != 0) written = system_error("sync", temporary);
  if (written.ok() && !file.close()) written = system_error("close", temporary);
  if (written.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) written = system_error("rename", temporary);
  if (!written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_directory(path.parent_path());
}

void remove_unfinished_writes(const std::filesystem::path& path) {
  const std::string prefix = path.filename().string() + kTemporaryMark;
  std::vector<std::filesystem::path> unfinished;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), ignored)) {
    const bool is_file = entry.symlink_status(ignored).type() == std::filesystem::file_type::regular;
    if (is_file && is_of_dead_process(entry.path().filename().string(), prefix)) unfinished.push_back(entry.path());
  }
  for (const auto& file : unfinished) std::filesystem::remove(file, ignored);
}

Status sync_file(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error("open", path);
  if (::fsync(file.get()) != 0) return system_error("sync", path);
  return {};
}

Status sync_directory(const std::filesystem::path& path) {
  FileDescriptor directory(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return system_error("open", path);
  if (::fsync(directory.get()) != 0) return system_error("sync", path);
  return {};
}

int lock_directory(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

std::filesystem::path expand_user(std::string_view path) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || (path != "~" && !path.starts_with("~/"))) return path;
  return std::filesystem::path(home) / std::filesystem::path(path.substr(path.size() > 1 ? 2 : 1));
}

}  // namespace tuft
