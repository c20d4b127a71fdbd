// The files that keep metric series by minutes, so that a restart does not lose them. Internal to telemetry_store. For
// the store's thread, except disk_bytes().
//
// A file says what a series is before its first row. There are several files, so that the oldest can be dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry_store/disk_file.h"

namespace tuft::telemetry_store::internal {

class MetricFile {
 public:
  // `directory` empty: nothing is kept. The files have the names `prefix` and a number.
  MetricFile(std::filesystem::path directory, std::string prefix, uint64_t disk_bytes_max);

  struct Reader {
    // Returns the row reader of the series with this number in the file.
    std::function<void(uint32_t number, std::string_view description)> series;
    std::function<void(Nanos minute, uint32_t number, std::string_view row)> row;
    std::function<void()> end_of_file;  // numbers begin anew
  };
  // Reads all files, oldest first. Leaves out what is damaged.
  void load(const Reader& reader);

  // Adds a row of the minute; `describe` is called if the file does not know the series yet.
  void add(Nanos minute, uint32_t number, std::string_view row, const std::function<std::string()>& describe);
  // Writes what was added to the page cache, and drops the oldest files. Errors: the disk.
  Status flush();
  uint64_t disk_bytes() const { return disk_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Part {
    uint64_t number = 0, bytes = 0;
  };
  std::filesystem::path path_of(uint64_t number) const;

  const std::filesystem::path directory_;
  const std::string prefix_;
  const uint64_t disk_bytes_max_;
  std::vector<Part> parts_;  // oldest first
  DiskFile file_;            // the last of parts_
  uint64_t next_number_ = 1;
  std::unordered_set<uint32_t> described_;  // in the file that grows
  std::string unwritten_;
  std::atomic<uint64_t> disk_bytes_ = 0;
};

}  // namespace tuft::telemetry_store::internal
