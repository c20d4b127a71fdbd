// An adapter in a file instead of in memory: its exact bits, for as long as this process lives. The file has no name,
// so that nothing of it stays behind however the process ends.
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

  // Once. In `directory`, which is made where it is missing. kInternal says why it failed.
  Status write(const std::filesystem::path& directory, const engine::AdapterState& state);
  // As often as wanted. kDataLoss where what comes back is not what was written.
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
