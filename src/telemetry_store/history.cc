#include "telemetry_store/history.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "metrics/telemetry_store.h"
#include "telemetry/log.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr uint64_t kSegmentBytesMax = uint64_t{8} << 20;
constexpr uint64_t kSegmentBytesMin = uint64_t{64} << 10;
// Of each maintenance; records wait meanwhile.
constexpr Nanos kRepairTime = 100 * kMillisecond;
constexpr Nanos kRetryInterval = 10 * kSecond;
// A segment is sealed when it is this part of the maximum age old, so that age drops pieces.
constexpr Nanos kAgeParts = 24;
// The index of a segment, in per cent of its records, for what is not yet sealed.
constexpr uint64_t kIndexPercent = 25;
// A segment that replaces others has the next number after theirs, so that the order of their making stays.
constexpr uint64_t kNumberGap = uint64_t{1} << 20;
// Small files are merged when there are this many: each costs memory for its filter, and each query a look.
constexpr size_t kSmallFilesMax = 32;
constexpr size_t kMergedMin = 8;

std::optional<uint64_t> number_of(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  uint64_t number = 0;
  const auto parsed = std::from_chars(stem.data(), stem.data() + stem.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != stem.data() + stem.size() || stem.size() != 20) return std::nullopt;
  return number;
}

uint64_t records_of(const Segment& segment) {
  return segment.extent().records().all();
}

// `reason`: one of those that the description of the counter names.
void count_removed(const RecordCount& records, std::string_view reason) {
  const auto& counter = metrics::telemetry_store().removed;
  if (records.spans > 0) counter.add(static_cast<int64_t>(records.spans), {{"reason", reason}, {"signal", "traces"}});
  if (records.logs > 0) counter.add(static_cast<int64_t>(records.logs), {{"reason", reason}, {"signal", "logs"}});
}

}  // namespace

History::History(HistoryOptions options) : options_(std::move(options)) {}

bool History::waits_for_disk(Nanos now) const {
  // A time that is further away is from before the clock was set back.
  return now < retry_at_ && retry_at_ - now <= kRetryInterval;
}

size_t History::segment_bytes() const {
  // Without a disk, records leave by segments.
  const uint64_t of_memory = options_.memory_bytes_max / (on_disk() ? 3 : 6);
  const uint64_t of_disk = on_disk() ? options_.disk_bytes_max / 8 : of_memory;
  return std::clamp(std::min(of_memory, of_disk), kSegmentBytesMin, kSegmentBytesMax);
}

size_t History::segments_max() const {
  // Their filters stay in memory, and take at most half of it.
  constexpr uint64_t kLeast = 64;
  return std::max<uint64_t>(kLeast, options_.memory_bytes_max / 2 / Bloom::kBytesMax);
}

uint64_t History::take_number() {
  last_number_ = (last_number_ / kNumberGap + 1) * kNumberGap;
  return last_number_;
}

void History::remove_replaced(std::vector<uint64_t>& numbers) const {
  std::error_code ignored;
  std::vector<uint64_t> kept;
  for (const uint64_t number : numbers) {
    const bool replaces = number >= kNumberGap && !kept.empty() && kept.back() / kNumberGap == number / kNumberGap;
    if (!replaces) {
      kept.push_back(number);
    } else if (std::filesystem::exists(index_path(options_.directory, number), ignored)) {
      remove_files(std::exchange(kept.back(), number));
    } else {
      remove_files(number);
    }
  }
  numbers = std::move(kept);
}

void History::load(Nanos now) {
  if (!on_disk()) return;
  std::vector<uint64_t> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(options_.directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    const auto number = number_of(path);
    std::error_code ignored;
    if (path.extension() == ".tmp") {
      std::filesystem::remove(path, ignored);
    } else if (number && path.extension() == ".seg") {
      numbers.push_back(*number);
    } else if (number && path.extension() == ".idx" &&
               !std::filesystem::exists(segment_path(options_.directory, *number), ignored)) {
      std::filesystem::remove(path, ignored);
    }
  }
  if (error) note_failure(file_error("list", options_.directory, error.value()), now);
  std::sort(numbers.begin(), numbers.end());
  remove_replaced(numbers);
  for (const uint64_t number : numbers) {
    last_number_ = std::max(last_number_, number);
    auto segment = FileSegment::open(options_.directory, number);
    if (segment.ok()) {
      put_file_segment(std::move(*segment));
    } else {
      const auto extent = read_extent(options_.directory, number);
      to_repair_.push_back({number, extent ? extent->records() : RecordCount{}});
    }
  }
  // The segment that grew when the last process ended is the one that people ask for.
  if (!to_repair_.empty()) repair_one(now);
  drop_expired(now);
}

MemorySegment& History::current(Nanos now) {
  if (current_.segment && current_.segment->is_full(segment_bytes())) seal_current(now);
  if (!current_.segment) {
    current_ = {};
    current_.segment = std::make_shared<MemorySegment>(take_number(), segment_bytes() + kEntryBytesMax);
    MutexLock lock(mutex_);
    in_memory_.push_back(current_.segment);
  }
  return *current_.segment;
}

Status History::write_records(InMemory& of) {
  const uint64_t bytes = of.segment->extent().bytes;
  if (of.written == bytes && of.file) return {};
  if (!of.file) {
    TUFT_ASSIGN(of.file, DiskFile::open_to_append(segment_path(options_.directory, of.segment->number())));
  }
  // What a failed write left.
  TUFT_TRY(of.file.cut(of.written));
  TUFT_TRY(of.segment->with_bytes_from(of.written, [&](std::string_view rest) { return of.file.append(rest); }));
  of.written = bytes;
  return {};
}

void History::flush(Nanos now) {
  if (!on_disk() || !current_.segment || waits_for_disk(now)) return;
  const Status written = write_records(current_);
  written.ok() ? note_success() : note_failure(written.error(), now);
}

Result<std::shared_ptr<FileSegment>> History::write_files(InMemory& of) {
  TUFT_TRY(write_records(of));
  TUFT_TRY(write_index(options_.directory, *of.segment));
  return FileSegment::open(options_.directory, of.segment->number(), true);
}

bool History::seal(InMemory& of, Nanos now) {
  if (!on_disk() || waits_for_disk(now)) return false;
  auto segment = write_files(of);
  if (!segment.ok()) {
    note_failure(segment.error(), now);
    return false;
  }
  put_file_segment(std::move(*segment));
  note_success();
  return true;
}

void History::put_file_segment(std::shared_ptr<FileSegment> segment, Sources replaced) {
  MutexLock lock(mutex_);
  std::erase_if(files_, [&](const auto& file) { return std::ranges::find(replaced, file) != replaced.end(); });
  if (!segment) return;
  const uint64_t number = segment->number();
  std::erase_if(in_memory_, [number](const auto& other) { return other->number() == number; });
  std::erase_if(files_, [number](const auto& other) { return other->number() == number; });
  const auto after = std::upper_bound(files_.begin(), files_.end(), number,
                                      [](uint64_t value, const auto& other) { return value < other->number(); });
  files_.insert(after, std::move(segment));
}

void History::seal_current(Nanos now) {
  if (!seal(current_, now)) waiting_.push_back(std::move(current_));
  current_ = {};
  drop_for_disk(now);
  drop_for_memory();
}

void History::retry_waiting(Nanos now) {
  if (!on_disk() || waits_for_disk(now)) return;
  while (!waiting_.empty() && seal(waiting_.front(), now)) waiting_.erase(waiting_.begin());
}

void History::maintain(Nanos now) {
  if (current_.segment) {
    const Extent extent = current_.segment->extent();
    const bool is_old = extent.arrived_first != 0 && now - extent.arrived_first > options_.age_max / kAgeParts;
    if (is_old || current_.segment->is_full(segment_bytes())) seal_current(now);
  }
  retry_waiting(now);
  find_damaged();
  const Nanos end = system_clock().monotonic() + kRepairTime;
  while (!to_repair_.empty() && system_clock().monotonic() < end) repair_one(now);
  drop_expired(now);
  drop_for_disk(now);
  drop_for_memory();
  uint64_t written = current_.written;
  for (const InMemory& waiting : waiting_) written += waiting.written;
  MutexLock lock(mutex_);
  written_ = written;
}

void History::close(Nanos now) {
  if (on_disk() && current_.segment && records_of(*current_.segment) > 0) seal_current(now);
}

void History::find_damaged() {
  MutexLock lock(mutex_);
  for (const auto& file : files_) {
    if (file->damaged()) to_repair_.push_back({file->number(), file->extent().records()});
  }
  std::erase_if(files_, [](const auto& file) { return file->damaged(); });
}

void History::repair_one(Nanos now) {
  const auto [number, known] = to_repair_.back();
  to_repair_.pop_back();
  auto segment = read_records(options_.directory, number, now);
  count_removed(excess(known, segment.ok() ? (*segment)->extent().records() : RecordCount{}), "corrupt");
  if (!segment.ok()) return note_failure(segment.error(), now);
  telemetry::log_info("telemetry_store.index_rebuilt",
                      "a segment of the telemetry store had no index, and its records were read again",
                      {{"tuft.records", static_cast<int64_t>(records_of(**segment))}});
  if (records_of(**segment) == 0) return remove_files(number);
  InMemory repaired;
  repaired.segment = std::move(*segment);
  repaired.written = repaired.segment->extent().bytes;
  if (seal(repaired, now)) return;
  const auto after = std::upper_bound(waiting_.begin(), waiting_.end(), number, [](uint64_t value, const auto& other) {
    return value < other.segment->number();
  });
  MutexLock lock(mutex_);
  in_memory_.insert(in_memory_.begin(), repaired.segment);
  waiting_.insert(after, std::move(repaired));
}

void History::remove_files(uint64_t number) const {
  std::error_code ignored;
  std::filesystem::remove(index_path(options_.directory, number), ignored);
  std::filesystem::remove(segment_path(options_.directory, number), ignored);
}

void History::drop_expired(Nanos now) {
  const Nanos oldest = now - options_.age_max;
  const auto expired = [oldest](const auto& segment) { return segment->extent().arrived_last < oldest; };
  std::vector<uint64_t> removed;
  RecordCount records;
  {
    MutexLock lock(mutex_);
    for (const auto& file : files_) {
      if (!expired(file)) continue;
      removed.push_back(file->number());
      records += file->extent().records();
    }
    std::erase_if(files_, expired);
    std::erase_if(in_memory_, [&](const auto& segment) {
      if (segment == current_.segment || !expired(segment)) return false;
      records += segment->extent().records();
      return true;
    });
  }
  count_removed(records, "age");
  for (const InMemory& waiting : waiting_) {
    if (on_disk() && expired(waiting.segment)) removed.push_back(waiting.segment->number());
  }
  std::erase_if(waiting_, [&](const InMemory& waiting) { return expired(waiting.segment); });
  for (const uint64_t number : removed) remove_files(number);
}

void History::drop_for_disk(Nanos now) {
  if (!on_disk()) return;
  merge_small(now);
  // A segment more than needed, so that this happens once for each new segment.
  if (const uint64_t over = bytes_over_limit(); over > 0) thin(over + segment_bytes(), now);
  drop_oldest();
}

uint64_t History::bytes_over_limit() const {
  uint64_t used = current_.segment ? current_.segment->extent().bytes : 0;
  for (const InMemory& waiting : waiting_) used += waiting.segment->extent().bytes;
  used += used * kIndexPercent / 100;
  MutexLock lock(mutex_);
  for (const auto& file : files_) used += file->disk_bytes();
  return used > options_.disk_bytes_max ? used - options_.disk_bytes_max : 0;
}

void History::thin(uint64_t bytes, Nanos now) {
  const std::vector<std::shared_ptr<FileSegment>> sources = files();
  std::map<uint64_t, OwnerBytes> known;
  std::vector<OwnerBytes> owners;
  for (const auto& file : sources) {
    const auto before = owner_bytes_.find(file->number());
    owners.push_back(before != owner_bytes_.end() ? std::move(before->second) : bytes_by_owner(file));
    known.emplace(file->number(), owners.back());
  }
  owner_bytes_ = std::move(known);
  const std::vector<Owners> leaving = choose_leaving(owners, bytes);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!leaving[i].empty()) rewrite({&sources[i], 1}, leaving[i], now);
  }
}

void History::merge_small(Nanos now) {
  std::vector<std::shared_ptr<FileSegment>> small = files();
  std::erase_if(small, [&](const auto& file) { return file->disk_bytes() >= segment_bytes() / 16; });
  if (small.size() < kSmallFilesMax) return;
  // Age drops whole segments, so that those of a merged one must be about equally old.
  for (size_t first = 0; first < small.size();) {
    const Nanos last = small[first]->extent().arrived_first + options_.age_max / kAgeParts;
    uint64_t bytes = small[first]->disk_bytes();
    size_t end = first + 1;
    while (end < small.size() && small[end]->extent().arrived_last <= last && bytes < segment_bytes())
      bytes += small[end++]->disk_bytes();
    if (end - first >= kMergedMin) rewrite({small.data() + first, end - first}, {}, now);
    first = end;
  }
}

void History::rewrite(Sources sources, const Owners& leaving, Nanos now) {
  if (waits_for_disk(now)) return;
  const uint64_t number = sources.front()->number() + 1;
  // In a store of an older version, whose numbers have no gaps.
  std::error_code unknown;
  if (std::filesystem::exists(segment_path(options_.directory, number), unknown) || unknown) return;
  size_t bytes = 0;
  RecordCount before, left;
  for (const auto& source : sources) {
    bytes += source->extent().bytes;
    before += source->extent().records();
  }
  InMemory out;
  out.segment = std::make_shared<MemorySegment>(number, bytes);
  for (const auto& source : sources) {
    const auto file = read_segment_file(options_.directory, source->number());
    if (!file.ok()) return;  // drop_oldest() removes what cannot be read
    left += copy_remaining(*file, leaving, source->extent(), *out.segment);
  }
  std::shared_ptr<FileSegment> written;
  if (records_of(*out.segment) > 0) {
    auto files = write_files(out);
    if (!files.ok()) {
      remove_files(number);
      return note_failure(files.error(), now);
    }
    written = std::move(*files);
  }
  put_file_segment(std::move(written), sources);
  count_removed(left, "thinning");
  RecordCount after = out.segment->extent().records();
  after += left;
  count_removed(excess(before, after), "corrupt");
  for (const auto& source : sources) remove_files(source->number());
}

void History::drop_oldest() {
  uint64_t over = bytes_over_limit();
  std::vector<uint64_t> removed;
  RecordCount records;
  {
    MutexLock lock(mutex_);
    size_t count = 0;
    while (count < files_.size() && (over > 0 || files_.size() - count > segments_max())) {
      over -= std::min(over, files_[count]->disk_bytes());
      records += files_[count]->extent().records();
      removed.push_back(files_[count++]->number());
    }
    files_.erase(files_.begin(), files_.begin() + static_cast<ptrdiff_t>(count));
  }
  count_removed(records, "bytes");
  for (const uint64_t number : removed) remove_files(number);
}

std::vector<std::shared_ptr<FileSegment>> History::files() const {
  MutexLock lock(mutex_);
  return files_;
}

void History::drop_for_memory() {
  uint64_t used = current_.segment ? current_.segment->memory_bytes() : 0;
  for (const InMemory& waiting : waiting_) used += waiting.segment->memory_bytes();
  while (!waiting_.empty() && used > options_.memory_bytes_max) {
    const std::shared_ptr<MemorySegment> oldest = waiting_.front().segment;
    used -= std::min<uint64_t>(used, oldest->memory_bytes());
    waiting_.erase(waiting_.begin());
    const RecordCount records = oldest->extent().records();
    if (on_disk()) {
      remove_files(oldest->number());
      metrics::telemetry_store().dropped.add(static_cast<int64_t>(records.all()), {{"reason", "disk"}});
    } else {
      count_removed(records, "bytes");
    }
    MutexLock lock(mutex_);
    std::erase(in_memory_, oldest);
    if (on_disk()) dropped_ += records.all();
  }
}

std::vector<std::shared_ptr<const Segment>> History::segments() const {
  std::vector<std::shared_ptr<const Segment>> all;
  {
    MutexLock lock(mutex_);
    all.assign(files_.begin(), files_.end());
    all.insert(all.end(), in_memory_.begin(), in_memory_.end());
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->number() < b->number(); });
  return all;
}

HistoryState History::state() const {
  HistoryState state;
  const auto add = [&state](const Segment& segment) {
    const Extent extent = segment.extent();
    state.spans += extent.rows_of(Table::kSpans);
    state.logs += extent.rows_of(Table::kLogs);
    if (extent.arrived_first != 0 && (state.oldest == 0 || extent.arrived_first < state.oldest))
      state.oldest = extent.arrived_first;
  };
  MutexLock lock(mutex_);
  for (const auto& file : files_) {
    add(*file);
    state.disk_bytes += file->disk_bytes();
    state.memory_bytes += file->memory_bytes();
  }
  for (const auto& segment : in_memory_) {
    add(*segment);
    state.memory_bytes += segment->memory_bytes();
  }
  state.disk_bytes += written_;
  state.problem = problem_;
  state.dropped = dropped_;
  return state;
}

void History::note_failure(const Error& error, Nanos now) {
  retry_at_ = now + kRetryInterval;
  {
    MutexLock lock(mutex_);
    if (!problem_.empty()) return;
    problem_ = error.message;
  }
  telemetry::log_error("telemetry_store.disk_failed",
                       "the telemetry store cannot use its directory and keeps the newest records in memory",
                       {{"error.type", error_code_name(error.code)}, {"tuft.reason", error.message}});
}

void History::note_success() {
  MutexLock lock(mutex_);
  if (problem_.empty()) return;
  problem_.clear();
  telemetry::log_info("telemetry_store.disk_recovered", "the telemetry store writes to its directory again");
}

}  // namespace tuft::telemetry_store::internal
