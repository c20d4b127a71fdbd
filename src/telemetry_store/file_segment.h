// A sealed segment: a file of records and, beside it, an index file with its columns. Internal to telemetry_store.
//
// Of a sealed segment only its extent and its Bloom filter are in memory; columns are read when a query needs them. A
// part of the index is checked against its checksum when it is read for the first time. The files are open only while
// they are read: neither a deleted file nor one that somebody cut can do more than make a query find less.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "telemetry_store/bloom.h"
#include "telemetry_store/disk_file.h"
#include "telemetry_store/memory_segment.h"
#include "telemetry_store/segment.h"

namespace tuft::telemetry_store::internal {

// "00000000000000000012.seg" and ".idx".
std::filesystem::path segment_path(const std::filesystem::path& directory, uint64_t number);
std::filesystem::path index_path(const std::filesystem::path& directory, uint64_t number);

// Writes the index file of a segment whose records are in its file, and returns its size.
Result<uint64_t> write_index(const std::filesystem::path& directory, const MemorySegment& segment);
// Returns the content of a segment's file of records.
Result<std::string> read_segment_file(const std::filesystem::path& directory, uint64_t number);
// Makes a segment from the records of a file, as after a crash. Errors: the file cannot be read or is too large.
Result<std::shared_ptr<MemorySegment>> read_records(const std::filesystem::path& directory, uint64_t number, Nanos now);

// Returns what the head of an index file says of its segment; nothing if the head is damaged or missing.
std::optional<Extent> read_extent(const std::filesystem::path& directory, uint64_t number);

class FileSegment final : public Segment {
 public:
  // Reads the index file. `is_new`: this process has just written it, so that its parts need not be checked. Errors:
  // kNotFound, kDataLoss: write it again from the records.
  static Result<std::shared_ptr<FileSegment>> open(const std::filesystem::path& directory, uint64_t number,
                                                   bool is_new = false);

  // A part of the index was found damaged; queries find nothing in this segment until it is opened again.
  bool damaged() const { return damaged_.load(std::memory_order_relaxed); }
  uint64_t disk_bytes() const { return disk_bytes_; }
  size_t memory_bytes() const { return sizeof *this + bloom_.bytes().size() + 16 * sections_.size(); }

  Extent extent() const override { return extent_; }
  bool may_have(uint64_t hash) const override { return !damaged() && bloom_.may_contain(hash); }
  std::optional<uint32_t> find_string(std::string_view text) const override;
  Strings strings() const override;
  std::string string(uint32_t number) const override;
  std::vector<Context> contexts() const override;
  std::string read(uint64_t position, size_t size) const override;
  std::shared_ptr<const void> hold() const override { return index_file(); }

  struct Section {
    uint64_t offset = 0, bytes = 0, sum = 0;
  };

 protected:
  bool copy_values(Table table, Column column, size_t first, size_t count, void* out) const override;

 private:
  FileSegment(std::filesystem::path directory, uint64_t number);
  Status load(bool is_new);
  // Reads `bytes` of a section from `first` on; checks the whole section when it is read for the first time.
  bool read_section(size_t section, size_t first, size_t bytes, void* out) const;
  // The index file, opened if nobody holds it; nothing if that fails.
  std::shared_ptr<const DiskFile> index_file() const TUFT_EXCLUDES(file_mutex_);
  std::string section_text(size_t section) const;

  const std::filesystem::path directory_;
  Extent extent_;
  Bloom bloom_;
  std::vector<Section> sections_;
  std::unique_ptr<std::atomic<bool>[]> checked_;
  uint64_t disk_bytes_ = 0;
  mutable std::atomic<bool> damaged_ = false;
  mutable Mutex file_mutex_;
  mutable std::weak_ptr<const DiskFile> index_file_ TUFT_GUARDED_BY(file_mutex_);
};

}  // namespace tuft::telemetry_store::internal
