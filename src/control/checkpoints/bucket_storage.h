// Checkpoints in a bucket, for a server whose workers have no directory in common.
//
//   files/<run folder>/<weights|sampler_weights|external_weights>/<uuid>/<file>   what the worker writes
//   index/<run folder>/<weights|sampler_weights|external_weights>/<name>.json     where the files are, and the metadata
//
// An object cannot be renamed, but it is put completely or not at all. So the object of the index, put last, is the
// checkpoint: it replaces another by being put, and files that it does not name do not exist for anybody. Files never
// change. A copy of a checkpoint names the same files, which are removed with the last that names them. The next start
// removes what a killed server left: files that the index does not name, and uploads that did not end.
//
// A put or a removal that fails because the bucket does not answer may have been done. Then the index is put right, as
// the server remembers it, as soon as the bucket answers again. If the server ends before that, what the bucket has
// counts.
//
// Only one server may use the prefix of the bucket at a time; what other programs put there is found at the next start.
#pragma once

#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "bucket/bucket.h"
#include "control/checkpoints/checkpoint_storage.h"

namespace tuft::control {

// Reads the whole index, and shows that the bucket can be read and written. Encryption uses `scratch`, a directory of
// this server. Errors are those of the bucket.
Result<std::unique_ptr<CheckpointStorage>> open_bucket_storage(std::shared_ptr<bucket::Bucket> bucket,
                                                               const std::filesystem::path& scratch,
                                                               const Clock& clock);

}  // namespace tuft::control
