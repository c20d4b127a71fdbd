// Where the files of checkpoints are: a directory (directory_storage.h) or a bucket (bucket_storage.h).
//
// The files of a checkpoint have a place, which never changes and is never used again. Only the storage and the workers
// understand it: an absolute path is a directory, and a relative one is how the names of objects in the bucket begin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/types/checkpoint.h"
#include "control/types/checkpoint_path.h"

namespace tuft::control {

// A file of a checkpoint that is open for reading. One thread at a time.
class CheckpointFile {
 public:
  virtual ~CheckpointFile() = default;
  virtual int64_t size_bytes() const = 0;
  // [disk] Reads 1 to `bytes_max` bytes at `offset` < size_bytes(). Callers read from the begin to the end; a file that
  // is damaged fails at the latest with its last byte.
  virtual Result<std::string> read(int64_t offset, size_t bytes_max) = 0;
};

// Methods marked [disk] access files or the network, and belong to one thread at a time: the disk thread, or that of
// the start. Errors have messages for clients; what an operator needs besides is in the log.
class CheckpointStorage {
 public:
  struct Found {
    std::filesystem::path place;
    std::string name;  // name_of() its path
    Result<Checkpoint> checkpoint;
  };

  virtual ~CheckpointStorage() = default;

  // [disk] Calls `found` for each checkpoint, and for what is there in the place of one and cannot be read. Of several
  // with one path the newest comes first. Removes what a killed server left unfinished.
  virtual void scan(const std::function<void(Found)>& found) = 0;

  // [disk] Returns an unused place, where the worker writes a checkpoint before commit().
  virtual Result<std::filesystem::path> prepare(const RunId& run, CheckpointKind kind) = 0;
  // [disk] Makes the files at `prepared` a checkpoint: all of it can be found by scan() from then on, or nothing. It
  // replaces `replaced` (null: there is none), whose files stay. Returns its place.
  virtual Result<std::filesystem::path> commit(const std::filesystem::path& prepared, const Checkpoint& checkpoint,
                                               const Checkpoint* replaced) = 0;
  // [disk] Replaces the metadata of the checkpoint at `place`.
  virtual Status update(const std::filesystem::path& place, const Checkpoint& current, const Checkpoint& changed) = 0;
  // [disk] scan() does not find the checkpoint at `place` any more. Its files stay.
  virtual Status retire(const std::filesystem::path& place, const Checkpoint& checkpoint) = 0;
  // [disk] Returns a place, for commit(), that has the files of the checkpoint at `source`, which may be the same ones.
  virtual Result<std::filesystem::path> clone(const std::filesystem::path& source, const RunId& run,
                                              CheckpointKind kind) = 0;
  // [disk] Removes the files at a place that has no checkpoint: one that was retired, or prepared in vain.
  virtual void discard(const std::filesystem::path& place) = 0;

  // [disk] Opens a file of the checkpoint at `place`.
  virtual Result<std::unique_ptr<CheckpointFile>> open(const std::filesystem::path& place, const std::string& file) = 0;

  // [disk] Returns a directory with the named files of `prepared`, where the server itself may change them. Where that
  // is a copy, leave_directory() brings the changes back.
  virtual Result<std::filesystem::path> enter_directory(const std::filesystem::path& prepared,
                                                        const std::vector<std::string>& files) = 0;
  // [disk] Ends the use of the directory. `succeeded`: what is in it now replaces `files` at `prepared`.
  virtual Status leave_directory(const std::filesystem::path& prepared, const std::filesystem::path& directory,
                                 const std::vector<std::string>& files, bool succeeded) = 0;

  // [disk] Does a part of what is to be done later, such as the removal of what scan() found to be left over.
  virtual void clean_up() {}
  // Returns whether clean_up() has something to do. Any thread.
  virtual bool needs_clean_up() const { return false; }
  // Makes [disk] calls that wait for a network fail soon. Any thread.
  virtual void cancel() {}
};

// Returns "<run folder>/<weights|sampler_weights|external_weights>/<name>".
std::string name_of(const CheckpointPath& path);

// The error for clients of a failed access to a storage, which logs `cause`.
Error storage_error(std::string_view what, const Error& cause);
// Returns the error for clients when a checkpoint cannot be written because there is no room for it.
Error disk_is_full();

}  // namespace tuft::control
