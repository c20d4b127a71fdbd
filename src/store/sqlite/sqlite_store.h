// A store in one SQLite file. Writes are grouped; a write succeeds after the fsync of its group.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "store/key_value.h"
#include "store/threaded_store.h"

namespace tuft::store {

// Opens the file and locks it until the store is closed. Creates the file, readable by its owner only, and its
// directory if they do not exist. Returns kUnavailable "store_locked" if another process has the file open, and
// kDataLoss "store_corrupt", leaving the file unchanged, if it is damaged or not a store.
Result<std::unique_ptr<KeyValue>> open_sqlite_store(const std::filesystem::path& path, const QueueLimits& limits = {});

}  // namespace tuft::store
