// A segment that is held in memory: the one that records are appended to, and those that could not be written to the
// disk. Internal to telemetry_store.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "telemetry_store/bloom.h"
#include "telemetry_store/entry.h"
#include "telemetry_store/segment.h"
#include "telemetry_store/string_table.h"

namespace tuft::telemetry_store::internal {

// One thread appends; any thread reads.
class MemorySegment final : public Segment {
 public:
  // `bytes_expected`: of the records; memory for them is reserved.
  MemorySegment(uint64_t number, size_t bytes_expected);

  void append(const Context& context, const SpanView& span, Nanos now) TUFT_EXCLUDES(mutex_);
  void append(const Context& context, const LogView& log, Nanos now) TUFT_EXCLUDES(mutex_);
  // Appends the content of a segment file to an empty segment. Damaged parts are left out.
  void append_file(std::string file, Nanos now) TUFT_EXCLUDES(mutex_);

  // What the index file of this segment contains.
  struct Content {
    Extent extent;
    std::array<std::array<std::string, kColumns>, kTables> columns;
    std::string string_ends, string_hashes, string_blob;
    std::string contexts;
    Bloom bloom;
  };
  Content content() const TUFT_EXCLUDES(mutex_);
  size_t memory_bytes() const TUFT_EXCLUDES(mutex_);
  // The end of the segment is full, or its contexts are.
  bool is_full(size_t bytes_max) const TUFT_EXCLUDES(mutex_);
  // Calls `write` with the bytes from `position` on, without the lock. For the thread that appends.
  template <typename Write>
  auto with_bytes_from(uint64_t position, const Write& write) const TUFT_EXCLUDES(mutex_) {
    std::string_view bytes;
    {
      MutexLock lock(mutex_);
      bytes = std::string_view(bytes_).substr(position);
    }
    return write(bytes);
  }

  Extent extent() const override TUFT_EXCLUDES(mutex_);
  bool may_have(uint64_t hash) const override TUFT_EXCLUDES(mutex_);
  std::optional<uint32_t> find_string(std::string_view text) const override TUFT_EXCLUDES(mutex_);
  Strings strings() const override TUFT_EXCLUDES(mutex_);
  std::string string(uint32_t number) const override TUFT_EXCLUDES(mutex_);
  std::vector<Context> contexts() const override TUFT_EXCLUDES(mutex_);
  std::string read(uint64_t position, size_t size) const override TUFT_EXCLUDES(mutex_);

 protected:
  bool copy_values(Table table, Column column, size_t first, size_t count, void* out) const override
      TUFT_EXCLUDES(mutex_);

 private:
  template <typename T>
  void put(Table table, Column column, T value) TUFT_REQUIRES(mutex_);
  // Where the bytes of a record are.
  struct Place {
    size_t position = 0;
    uint32_t sum = 0;
    uint32_t context = 0;
  };
  Place append_bytes(EntryType type, const Context& context, std::string_view bytes) TUFT_REQUIRES(mutex_);
  void add_row(const Place& place, const SpanView& span, Nanos now) TUFT_REQUIRES(mutex_);
  void add_row(const Place& place, const LogView& log, Nanos now) TUFT_REQUIRES(mutex_);
  void add_common(Table table, const Place& place, const RecordView& record, Nanos time, Nanos now)
      TUFT_REQUIRES(mutex_);
  uint32_t context_number(const Context& context) TUFT_REQUIRES(mutex_);
  uint32_t intern(Column column, std::string_view text) TUFT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Extent extent_ TUFT_GUARDED_BY(mutex_);
  std::string bytes_ TUFT_GUARDED_BY(mutex_);
  std::array<std::array<std::vector<char>, kColumns>, kTables> columns_ TUFT_GUARDED_BY(mutex_);
  StringTable strings_ TUFT_GUARDED_BY(mutex_);
  std::vector<Context> contexts_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, uint32_t> context_numbers_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, uint32_t> contexts_of_owner_ TUFT_GUARDED_BY(mutex_);
  size_t context_bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  uint32_t last_context_ TUFT_GUARDED_BY(mutex_) = 0;
  // Consecutive records often have the same key.
  std::array<uint32_t, kColumns> last_string_ TUFT_GUARDED_BY(mutex_){};
  Bloom bloom_ TUFT_GUARDED_BY(mutex_);
};

// The form of contexts in entries and index files: each string with its length before it, and of_program as a byte.
std::string encode_context(const Context& context);
// Removes a context from the start of `bytes`. Returns false if there is none.
bool decode_context(std::string_view& bytes, Context& out);

}  // namespace tuft::telemetry_store::internal
