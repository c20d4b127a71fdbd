// AdapterPage: an adapter in a file instead of in memory, with its exact bits, while this process lives. The file has
// no name, so that it disappears however the process ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "engine/lora.h"

namespace tuft::worker {

// Used by one thread at a time.
class AdapterPage {
 public:
  AdapterPage() = default;
  ~AdapterPage();
  AdapterPage(const AdapterPage&) = delete;
  AdapterPage& operator=(const AdapterPage&) = delete;

  // Writes the file in `directory`, which is created if it is missing. To be called once. Returns kInternal with the
  // cause.
  Status write(const std::filesystem::path& directory, const engine::AdapterState& state);
  // Returns what was written, or kDataLoss where the file has changed. May be called any number of times.
  Result<engine::AdapterState> read() const;
  int64_t bytes() const { return bytes_; }

 private:
  int file_ = -1;
  int64_t bytes_ = 0;
  uint64_t checksum_ = 0;
  engine::AdapterState shape_;  // without values
  std::vector<size_t> sizes_;   // of the values, in order
};

}  // namespace tuft::worker
