// Checkpoints in a directory that the server and its workers see under one path.
//
//   <checkpoint_dir>/<run folder>/<weights|sampler_weights|external_weights>/<name>[~N]/metadata.json + what the worker
//   writes
//
// A directory appears completely, by a rename, and never moves. A checkpoint that replaces another gets its own
// directory (~2, ~3, ...); the highest number counts. When a checkpoint is deleted or replaced, its metadata.json is
// renamed to deleted.json at once, so that a restart does not restore it, and the other files are removed when the last
// reader is done. The folders of a run go with the last of its checkpoints. The next start removes what a killed server
// left: unfinished, deleted and replaced checkpoints, and empty folders. Other directories that are not checkpoints are
// left unchanged. Only one server may use the directory at a time; checkpoints that other programs add are found at the
// next start.
#pragma once

#include <filesystem>
#include <memory>

#include "control/checkpoints/checkpoint_storage.h"

namespace tuft::control {

// With `only_looks`, the directory belongs to another server, which writes it: nothing is removed or changed. Requires
// that only scan() and open() are called then.
std::unique_ptr<CheckpointStorage> make_directory_storage(std::filesystem::path root, bool only_looks = false);

}  // namespace tuft::control
