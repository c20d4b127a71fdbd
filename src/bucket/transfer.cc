#include "bucket/transfer.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace tuft::bucket {

RunningSha256::RunningSha256() : context_(::EVP_MD_CTX_new()) {
  TUFT_CHECK(context_ != nullptr && ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr) == 1,
             "SHA-256 is part of OpenSSL");
}

void RunningSha256::add(std::string_view bytes) {
  ::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string RunningSha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  ::EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
  std::string text;
  append_hex(text, {reinterpret_cast<const char*>(digest.data()), size});
  return text;
}

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
  struct stat info = {};
  if (file == nullptr || ::fstat(::fileno(file.get()), &info) != 0) return file_error("open", path.filename(), errno);
  return InputFile(std::move(file), info.st_size);
}

Result<std::string> InputFile::read(int64_t size_bytes) {
  std::string bytes(static_cast<size_t>(size_bytes), '\0');
  if (std::fread(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return internal_error("a file of a checkpoint cannot be read, or has shrunk", "io");
  }
  return bytes;
}

Status InputFile::rewind() {
  if (std::fseek(file_.get(), 0, SEEK_SET) == 0) return {};
  return internal_error("a file of a checkpoint cannot be read again", "io");
}

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return file_error("create", path.filename(), errno);
  return OutputFile(path, fd);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

Status OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return file_error("write", path_.filename(), errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status OutputFile::keep() {
  if (::fsync(fd_) != 0) return file_error("sync", path_.filename(), errno);
  if (::close(std::exchange(fd_, -1)) != 0) return file_error("close", path_.filename(), errno);
  return {};
}

}  // namespace tuft::bucket
