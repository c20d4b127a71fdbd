// Checkpoints in a bucket, as a worker sees them: it writes a checkpoint to its own disk and puts the files, and gets
// the files and reads them. The copies on its disk stay for the next load, within a limit; the least recently used ones
// go first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bucket/bucket.h"
#include "engine/checkpoint/checkpoint.h"

namespace tuft::worker {

// A place of a checkpoint is how the names of its objects begin, without the slash before the name of a file. It is
// used for one checkpoint only, whose files never change.
//
// Confined to the file thread, except cancel().
class BucketCheckpoints {
 public:
  // Copies are in a new directory below `directory`, which is removed at the end. Removes those that killed processes
  // left there.
  static Result<std::unique_ptr<BucketCheckpoints>> create(std::unique_ptr<bucket::Bucket> bucket,
                                                           const std::filesystem::path& directory,
                                                           int64_t copy_bytes_max);
  ~BucketCheckpoints();
  BucketCheckpoints(const BucketCheckpoints&) = delete;
  BucketCheckpoints& operator=(const BucketCheckpoints&) = delete;

  // See engine::write_checkpoint(). All files are in the bucket when this returns. After an error some may be there;
  // the control plane removes them.
  Result<int64_t> write(const std::string& place, const engine::ModelSpec& model, const engine::AdapterState& state,
                        const std::string& base_model_name);
  // See engine::read_checkpoint(). kDataLoss also if objects are missing or damaged.
  Result<engine::AdapterState> read(const std::string& place, const engine::ModelSpec& model, bool with_optimizer);

  // Makes running and later calls fail soon. Any thread.
  void cancel() { bucket_->cancel(0); }

 private:
  struct File {
    std::string name;
    int64_t size_bytes = 0;
    bool is_here = false;
  };
  struct Copy {
    std::string place;
    std::filesystem::path directory;
    std::vector<File> files;
    int64_t bytes() const;  // of the files that are here
  };
  using Copies = std::list<Copy>;

  BucketCheckpoints(std::unique_ptr<bucket::Bucket> bucket, std::filesystem::path directory, int lock,
                    int64_t copy_bytes_max);
  Result<Copies::iterator> find_or_list(const std::string& place);
  Status fetch(Copy& copy, bool with_optimizer);
  // Removes other copies until `more` bytes have room beside those of the first one.
  void make_room(int64_t more);
  void drop(Copies::iterator copy);

  const std::unique_ptr<bucket::Bucket> bucket_;
  const std::filesystem::path directory_;
  const int lock_;  // an open directory, locked as long as this process uses it
  const int64_t copy_bytes_max_;
  Copies copies_;  // the most recently used one first
};

}  // namespace tuft::worker
