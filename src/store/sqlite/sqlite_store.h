// The store in one SQLite file. A write is answered after the fsync of the group that it is in.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "store/key_value.h"
#include "store/threaded_store.h"

namespace tuft::store {

// Makes the file, readable by its owner alone, and its directory where they are not there. The file belongs to the
// process until the store is closed. kUnavailable "store_locked" where another has it; kDataLoss "store_corrupt" where
// it is no such file or a damaged one: it is left as it is.
Result<std::unique_ptr<KeyValue>> open_sqlite_store(const std::filesystem::path& path, const QueueLimits& limits = {});

}  // namespace tuft::store
