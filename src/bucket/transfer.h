// Bytes on their way between files and a bucket. Errors name the file without its directory, since clients may read
// them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/evp.h>

#include "base/result.h"

namespace tuft::bucket {

// A SHA-256 of bytes that come in pieces. Not thread-safe.
class RunningSha256 {
 public:
  RunningSha256();
  void add(std::string_view bytes);
  std::string hex();  // once, at the end

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

// A file that is read from its begin to its end. Not thread-safe.
class InputFile {
 public:
  static Result<InputFile> open(const std::filesystem::path& path);
  int64_t size_bytes() const { return size_bytes_; }
  // Reads the next `size_bytes` bytes; kInternal if the file ends before.
  Result<std::string> read(int64_t size_bytes);
  Status rewind();

 private:
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  InputFile(std::unique_ptr<std::FILE, Close> file, int64_t size_bytes)
      : file_(std::move(file)), size_bytes_(size_bytes) {}

  std::unique_ptr<std::FILE, Close> file_;
  int64_t size_bytes_;
};

// A new file, which is removed at the end of this object unless it was kept. Not thread-safe.
class OutputFile {
 public:
  // kAlreadyExists if there is a file of that name.
  static Result<OutputFile> create(const std::filesystem::path& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  Status write(std::string_view bytes);
  // Syncs and closes the file.
  Status keep();

 private:
  OutputFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::filesystem::path path_;
  int fd_;
};

}  // namespace tuft::bucket
