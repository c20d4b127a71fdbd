#include "telemetry_store/file_segment.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "telemetry_store/disk_file.h"
#include "telemetry_store/hash.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr uint64_t kIndexMagic = 0x32584449544655ff;
constexpr uint64_t kIndexBytesMax = uint64_t{1} << 30;
constexpr uint64_t kRecordsBytesMax = uint64_t{256} << 20;

// The sections of an index file: the columns, by table, and then:
constexpr size_t kFirstSection = kTables * kColumns;
constexpr size_t kStringEnds = kFirstSection;
constexpr size_t kStringHashes = kFirstSection + 1;
constexpr size_t kStringBlob = kFirstSection + 2;
constexpr size_t kContexts = kFirstSection + 3;
constexpr size_t kBloom = kFirstSection + 4;
constexpr size_t kSections = kFirstSection + 5;

struct IndexHead {
  uint64_t magic = kIndexMagic;
  uint64_t sum = 0;  // of what follows
  Extent extent;
  std::array<FileSegment::Section, kSections> sections{};
};
static_assert(std::is_trivially_copyable_v<IndexHead>);
constexpr size_t kSummed = offsetof(IndexHead, extent);

uint64_t sum_of(const IndexHead& head) {
  return hash_of({reinterpret_cast<const char*>(&head) + kSummed, sizeof head - kSummed});
}

std::filesystem::path numbered(const std::filesystem::path& directory, uint64_t number, const char* ending) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%020llu%s", static_cast<unsigned long long>(number), ending);
  return directory / name.data();
}

size_t section_of(Table table, Column column) {
  return static_cast<size_t>(table) * kColumns + static_cast<size_t>(column);
}

// Returns null for a damaged head.
std::unique_ptr<IndexHead> read_head(const DiskFile& file) {
  auto head = std::make_unique<IndexHead>();
  const bool whole = file.read_at(0, head.get(), sizeof *head) && head->magic == kIndexMagic;
  return whole && head->sum == sum_of(*head) ? std::move(head) : nullptr;
}

Error damaged_index(uint64_t number) {
  return data_loss("the index of segment " + std::to_string(number) + " of the telemetry store is damaged");
}

}  // namespace

std::filesystem::path segment_path(const std::filesystem::path& directory, uint64_t number) {
  return numbered(directory, number, ".seg");
}

std::filesystem::path index_path(const std::filesystem::path& directory, uint64_t number) {
  return numbered(directory, number, ".idx");
}

Result<uint64_t> write_index(const std::filesystem::path& directory, const MemorySegment& segment) {
  const MemorySegment::Content content = segment.content();
  // Zeroed, because padding is part of the checksum.
  auto head = std::make_unique<IndexHead>();
  std::memset(static_cast<void*>(head.get()), 0, sizeof *head);
  head->magic = kIndexMagic;
  head->extent = content.extent;
  std::string file(sizeof(IndexHead), '\0');
  const auto add = [&](size_t section, std::string_view bytes) {
    head->sections[section] = {file.size(), bytes.size(), hash_of(bytes)};
    file += bytes;
  };
  for (size_t table = 0; table < kTables; ++table) {
    for (size_t column = 0; column < kColumns; ++column) add(table * kColumns + column, content.columns[table][column]);
  }
  add(kStringEnds, content.string_ends);
  add(kStringHashes, content.string_hashes);
  add(kStringBlob, content.string_blob);
  add(kContexts, content.contexts);
  add(kBloom, content.bloom.bytes());
  head->sum = sum_of(*head);
  std::memcpy(file.data(), head.get(), sizeof *head);
  TUFT_TRY(replace_file(index_path(directory, segment.number()), file));
  return file.size();
}

Result<std::string> read_segment_file(const std::filesystem::path& directory, uint64_t number) {
  return read_file(segment_path(directory, number), kRecordsBytesMax);
}

Result<std::shared_ptr<MemorySegment>> read_records(const std::filesystem::path& directory, uint64_t number,
                                                    Nanos now) {
  TUFT_ASSIGN(std::string file, read_segment_file(directory, number));
  auto segment = std::make_shared<MemorySegment>(number, file.size());
  segment->append_file(std::move(file), now);
  return segment;
}

std::optional<Extent> read_extent(const std::filesystem::path& directory, uint64_t number) {
  const auto file = DiskFile::open_to_read(index_path(directory, number));
  if (!file.ok()) return std::nullopt;
  const std::unique_ptr<IndexHead> head = read_head(*file);
  return head ? std::optional(head->extent) : std::nullopt;
}

FileSegment::FileSegment(std::filesystem::path directory, uint64_t number)
    : Segment(number), directory_(std::move(directory)) {}

Result<std::shared_ptr<FileSegment>> FileSegment::open(const std::filesystem::path& directory, uint64_t number,
                                                       bool is_new) {
  std::shared_ptr<FileSegment> segment(new FileSegment(directory, number));
  TUFT_TRY(segment->load(is_new));
  return segment;
}

Status FileSegment::load(bool is_new) {
  TUFT_ASSIGN(const DiskFile file, DiskFile::open_to_read(index_path(directory_, number())));
  const std::unique_ptr<IndexHead> head = read_head(file);
  if (!head) return damaged_index(number());
  TUFT_ASSIGN(const uint64_t index_bytes, file.size());
  for (size_t i = 0; i < kSections; ++i) {
    const Section& section = head->sections[i];
    if (index_bytes > kIndexBytesMax || section.offset > index_bytes || section.bytes > index_bytes - section.offset)
      return damaged_index(number());
  }
  for (size_t table = 0; table < kTables; ++table) {
    for (size_t column = 0; column < kColumns; ++column) {
      if (!has_column(static_cast<Table>(table), static_cast<Column>(column))) continue;
      if (head->sections[table * kColumns + column].bytes !=
          uint64_t{head->extent.rows[table]} * width_of(static_cast<Column>(column)))
        return damaged_index(number());
    }
  }
  extent_ = head->extent;
  sections_.assign(head->sections.begin(), head->sections.end());
  checked_ = std::make_unique<std::atomic<bool>[]>(kSections);
  for (size_t i = 0; i < kSections; ++i) checked_[i].store(is_new, std::memory_order_relaxed);
  if (sections_[kBloom].bytes > Bloom::kBytesMax || !bloom_.assign(section_text(kBloom)))
    return damaged_index(number());
  std::error_code error;
  const auto records = std::filesystem::file_size(segment_path(directory_, number()), error);
  if (error || records < extent_.bytes) return damaged_index(number());
  disk_bytes_ = index_bytes + records;
  return {};
}

std::shared_ptr<const DiskFile> FileSegment::index_file() const {
  MutexLock lock(file_mutex_);
  std::shared_ptr<const DiskFile> file = index_file_.lock();
  if (file) return file;
  auto opened = DiskFile::open_to_read(index_path(directory_, number()));
  if (!opened.ok()) return nullptr;
  file = std::make_shared<const DiskFile>(std::move(*opened));
  index_file_ = file;
  return file;
}

bool FileSegment::read_section(size_t section, size_t first, size_t bytes, void* out) const {
  const Section& where = sections_[section];
  if (damaged() || first > where.bytes || bytes > where.bytes - first) return false;
  const std::shared_ptr<const DiskFile> file = index_file();
  if (!file) return false;
  std::atomic<bool>& checked = checked_[section];
  if (checked.load(std::memory_order_acquire)) return file->read_at(where.offset + first, out, bytes);
  std::string whole(where.bytes, '\0');
  const bool right = file->read_at(where.offset, whole.data(), whole.size()) && hash_of(whole) == where.sum;
  if (!right) {
    damaged_.store(true, std::memory_order_relaxed);
    return false;
  }
  checked.store(true, std::memory_order_release);
  if (bytes != 0) std::memcpy(out, whole.data() + first, bytes);
  return true;
}

std::string FileSegment::section_text(size_t section) const {
  std::string text(sections_[section].bytes, '\0');
  if (!read_section(section, 0, text.size(), text.data())) text.clear();
  return text;
}

bool FileSegment::copy_values(Table table, Column column, size_t first, size_t count, void* out) const {
  return read_section(section_of(table, column), first * width_of(column), count * width_of(column), out);
}

std::optional<uint32_t> FileSegment::find_string(std::string_view whole) const {
  const std::string_view text = cut_string(whole);
  if (text.empty()) return 0;
  if (!may_have(hash_of(text))) return std::nullopt;
  std::vector<uint32_t> hashes(sections_[kStringHashes].bytes / sizeof(uint32_t));
  if (!read_section(kStringHashes, 0, hashes.size() * sizeof(uint32_t), hashes.data())) return std::nullopt;
  const uint32_t hash = string_hash(text);
  for (auto at = std::find(hashes.begin(), hashes.end(), hash); at != hashes.end();
       at = std::find(at + 1, hashes.end(), hash)) {
    const auto number = static_cast<uint32_t>(at - hashes.begin());
    if (string(number) == text) return number;
  }
  return std::nullopt;
}

std::string FileSegment::string(uint32_t number) const {
  // The end of the string before and of this one.
  uint32_t ends[2] = {};
  const bool first = number == 0;
  if (!read_section(kStringEnds, (first ? 0 : number - 1) * sizeof(uint32_t), (first ? 1 : 2) * sizeof(uint32_t),
                    first ? ends + 1 : ends) ||
      ends[0] > ends[1] || ends[1] - ends[0] > kStringBytesMax)
    return {};
  std::string text(ends[1] - ends[0], '\0');
  if (!read_section(kStringBlob, ends[0], text.size(), text.data())) text.clear();
  return text;
}

Strings FileSegment::strings() const {
  Strings strings;
  strings.ends.resize(sections_[kStringEnds].bytes / sizeof(uint32_t));
  if (!read_section(kStringEnds, 0, strings.ends.size() * sizeof(uint32_t), strings.ends.data())) return {};
  strings.blob = section_text(kStringBlob);
  return strings;
}

std::vector<Context> FileSegment::contexts() const {
  const std::string text = section_text(kContexts);
  std::string_view rest = text;
  std::vector<Context> contexts;
  Context context;
  while (!rest.empty() && decode_context(rest, context)) contexts.push_back(context);
  return contexts;
}

std::string FileSegment::read(uint64_t position, size_t size) const {
  if (position > extent_.bytes || size > extent_.bytes - position) return {};
  auto file = DiskFile::open_to_read(segment_path(directory_, number()));
  std::string bytes(size, '\0');
  if (!file.ok() || !file->read_at(position, bytes.data(), size)) return {};
  return bytes;
}

}  // namespace tuft::telemetry_store::internal
