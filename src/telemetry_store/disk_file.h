// A file descriptor and the few things that the store does with it. Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace tuft::telemetry_store::internal {

class DiskFile {
 public:
  // No file.
  DiskFile() = default;
  static Result<DiskFile> open_to_read(const std::filesystem::path& path);
  // Makes the file, readable by this user only, or opens it to write at its end.
  static Result<DiskFile> open_to_append(const std::filesystem::path& path);
  ~DiskFile();
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // Returns false unless all of it was read.
  bool read_at(uint64_t position, void* out, size_t size) const;
  Status append(std::string_view bytes) const;
  Result<uint64_t> size() const;
  Status cut(uint64_t size) const;
  void close();

 private:
  int descriptor_ = -1;
  std::filesystem::path path_;
};

// Replaces the content by rename. Not synced: after a power cut the file may be damaged, which its reader finds out.
Status replace_file(const std::filesystem::path& path, std::string_view content);

}  // namespace tuft::telemetry_store::internal
