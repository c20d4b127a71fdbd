#include "telemetry_store/disk_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tuft::telemetry_store::internal {

Result<DiskFile> DiskFile::open_to_read(const std::filesystem::path& path) {
  DiskFile file;
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.descriptor_ < 0) return file_error("open", path, errno);
  file.path_ = path;
  return file;
}

Result<DiskFile> DiskFile::open_to_append(const std::filesystem::path& path) {
  constexpr mode_t kOnlyThisUser = 0600;
  DiskFile file;
  file.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kOnlyThisUser);
  if (file.descriptor_ < 0) return file_error("open", path, errno);
  file.path_ = path;
  return file;
}

DiskFile::~DiskFile() {
  close();
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  path_ = std::move(other.path_);
  return *this;
}

void DiskFile::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

bool DiskFile::read_at(uint64_t position, void* out, size_t size) const {
  return tuft::read_at(descriptor_, position, out, size) == static_cast<ssize_t>(size);
}

Status DiskFile::append(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error("write", path_, written < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<uint64_t> DiskFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) return file_error("stat", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

Status DiskFile::cut(uint64_t size) const {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) return file_error("truncate", path_, errno);
  return {};
}

Status replace_file(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  TUFT_ASSIGN(DiskFile file, DiskFile::open_to_append(temporary));
  Status written = file.append(content);
  file.close();
  if (written.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) written = file_error("rename", path, errno);
  if (!written.ok()) std::filesystem::remove(temporary, ignored);
  return written;
}

}  // namespace tuft::telemetry_store::internal
