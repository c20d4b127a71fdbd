// The gauge tuft.checkpoint.disk.usage.
#pragma once

#include <filesystem>

namespace tuft::metrics {

// Reports the used and the free space of the file system that holds `directory`, at each collection until the process
// ends.
void observe_checkpoint_disk(std::filesystem::path directory);

}  // namespace tuft::metrics
