// All segments: the one that grows, those in files, and those that wait in memory for the disk. Internal to
// telemetry_store.
//
// One thread, the store's, appends and maintains; any thread takes segments() and reads them.
//
// When the disk limit is reached, the oldest records of those owners leave that have more than a fair share
// (thinning.h): a segment is written again without them, under a new number, because queries may still read the old
// one.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry_store/disk_file.h"
#include "telemetry_store/file_segment.h"
#include "telemetry_store/memory_segment.h"
#include "telemetry_store/thinning.h"

namespace tuft::telemetry_store::internal {

struct HistoryOptions {
  std::filesystem::path directory;  // empty: memory only
  uint64_t disk_bytes_max = 0;
  uint64_t memory_bytes_max = 0;
  Nanos age_max = 0;
};

struct HistoryState {
  std::string problem;
  uint64_t disk_bytes = 0, memory_bytes = 0, spans = 0, logs = 0;
  Nanos oldest = 0;
  uint64_t dropped = 0;  // records that were given up because neither the disk nor the memory had room
};

class History {
 public:
  explicit History(HistoryOptions options);

  // ---- of the store's thread

  // Finds the segments of an earlier process. Reads only their heads; what is damaged is indexed again by maintain().
  void load(Nanos now) TUFT_EXCLUDES(mutex_);
  // Returns the segment that grows.
  MemorySegment& current(Nanos now) TUFT_EXCLUDES(mutex_);
  // Writes what was appended to the page cache. After a failure it waits some seconds before it tries again.
  void flush(Nanos now) TUFT_EXCLUDES(mutex_);
  // Seals a full segment, drops old ones, writes what waited for the disk, repairs damaged indexes for a moment.
  void maintain(Nanos now) TUFT_EXCLUDES(mutex_);
  // Seals the segment that grows, so that the next process need not read its records.
  void close(Nanos now) TUFT_EXCLUDES(mutex_);

  // ---- of any thread

  // Returns the segments, oldest first.
  std::vector<std::shared_ptr<const Segment>> segments() const TUFT_EXCLUDES(mutex_);
  HistoryState state() const TUFT_EXCLUDES(mutex_);

 private:
  // A segment in memory; `written` bytes of its records are in its file.
  struct InMemory {
    std::shared_ptr<MemorySegment> segment;
    DiskFile file;
    uint64_t written = 0;
  };

  // A segment whose records are to be read again. `records`: those that its index knew of; none if that was damaged.
  struct Damaged {
    uint64_t number = 0;
    RecordCount records;
  };

  using Sources = std::span<const std::shared_ptr<FileSegment>>;

  bool on_disk() const { return !options_.directory.empty(); }
  bool waits_for_disk(Nanos now) const;
  size_t segment_bytes() const;
  size_t segments_max() const;
  uint64_t take_number();
  // A process that is killed while it replaces a segment leaves both, and the new one is whole if it has an index.
  // Removes the other one from the directory and from `numbers`, which ascend. Of merged ones only the first is
  // recognized: the records of the others may be there twice until they are too old.
  void remove_replaced(std::vector<uint64_t>& numbers) const;
  Status write_records(InMemory& of);
  // Writes records and index.
  Result<std::shared_ptr<FileSegment>> write_files(InMemory& of);
  // Writes records and index, and replaces the segment in memory. Returns false if the disk failed.
  bool seal(InMemory& of, Nanos now) TUFT_EXCLUDES(mutex_);
  void seal_current(Nanos now) TUFT_EXCLUDES(mutex_);
  void retry_waiting(Nanos now) TUFT_EXCLUDES(mutex_);
  void drop_expired(Nanos now) TUFT_EXCLUDES(mutex_);
  void drop_for_disk(Nanos now) TUFT_EXCLUDES(mutex_);
  uint64_t bytes_over_limit() const TUFT_EXCLUDES(mutex_);
  // Lets at least `bytes` of the records of owners above their share leave, if the disk works.
  void thin(uint64_t bytes, Nanos now) TUFT_EXCLUDES(mutex_);
  void merge_small(Nanos now) TUFT_EXCLUDES(mutex_);
  // Writes one segment with what remains of `sources`, oldest first, and removes these.
  void rewrite(Sources sources, const Owners& leaving, Nanos now) TUFT_EXCLUDES(mutex_);
  void drop_oldest() TUFT_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<FileSegment>> files() const TUFT_EXCLUDES(mutex_);
  void drop_for_memory() TUFT_EXCLUDES(mutex_);
  void find_damaged() TUFT_EXCLUDES(mutex_);
  void repair_one(Nanos now) TUFT_EXCLUDES(mutex_);
  void remove_files(uint64_t number) const;
  // Puts the segment, which may be null, in the place of `replaced`.
  void put_file_segment(std::shared_ptr<FileSegment> segment, Sources replaced = {}) TUFT_EXCLUDES(mutex_);
  void note_failure(const Error& error, Nanos now) TUFT_EXCLUDES(mutex_);
  void note_success() TUFT_EXCLUDES(mutex_);

  const HistoryOptions options_;
  uint64_t last_number_ = 0;
  // Of the store's thread; `mutex_` guards changes of what others read.
  InMemory current_;
  std::vector<InMemory> waiting_;   // by number
  std::vector<Damaged> to_repair_;  // by number
  Nanos retry_at_ = 0;
  std::map<uint64_t, OwnerBytes> owner_bytes_;  // of files, by number; filled when they are needed

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<FileSegment>> files_ TUFT_GUARDED_BY(mutex_);        // by number
  std::vector<std::shared_ptr<MemorySegment>> in_memory_ TUFT_GUARDED_BY(mutex_);  // waiting_ and current_
  std::string problem_ TUFT_GUARDED_BY(mutex_);
  uint64_t written_ TUFT_GUARDED_BY(mutex_) = 0;  // bytes in files of in_memory_
  uint64_t dropped_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::telemetry_store::internal
