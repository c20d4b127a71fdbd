#include "telemetry_store/metric_file.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "telemetry_store/bytes.h"
#include "telemetry_store/entry.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr uint64_t kPartBytesMax = uint64_t{2} << 20;
constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;
constexpr size_t kUnwrittenBytesMax = size_t{4} << 20;

}  // namespace

MetricFile::MetricFile(std::filesystem::path directory, std::string prefix, uint64_t disk_bytes_max)
    : directory_(std::move(directory)), prefix_(std::move(prefix)), disk_bytes_max_(disk_bytes_max) {}

std::filesystem::path MetricFile::path_of(uint64_t number) const {
  return directory_ / (prefix_ + std::to_string(number));
}

void MetricFile::load(const Reader& reader) {
  if (directory_.empty()) return;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    uint64_t number = 0;
    if (!name.starts_with(prefix_)) continue;
    const char* digits = name.data() + prefix_.size();
    const auto parsed = std::from_chars(digits, name.data() + name.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size()) parts_.push_back({number, 0});
  }
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.number < b.number; });
  uint64_t all = 0;
  for (Part& part : parts_) {
    next_number_ = std::max(next_number_, part.number + 1);
    const auto content = read_file(path_of(part.number), kFileBytesMax);
    if (!content.ok()) continue;
    part.bytes = content->size();
    all += part.bytes;
    read_entries(*content, [&](const Entry& entry) {
      if (entry.type == EntryType::kSeries) reader.series(entry.context, entry.content);
      if (entry.type != EntryType::kPoints) return;
      ByteReader rows(entry.content);
      const auto minute = rows.get<Nanos>();
      while (!rows.at_end()) {
        const uint64_t number = rows.count();
        const std::string_view row = rows.text();
        if (rows.ok()) reader.row(minute, static_cast<uint32_t>(number), row);
      }
    });
    reader.end_of_file();
  }
  disk_bytes_.store(all, std::memory_order_relaxed);
}

void MetricFile::add(Nanos minute, uint32_t number, std::string_view row,
                     const std::function<std::string()>& describe) {
  if (directory_.empty() || unwritten_.size() > kUnwrittenBytesMax) return;
  if (described_.insert(number).second) append_entry(unwritten_, EntryType::kSeries, number, describe());
  ByteWriter content;
  content.put(minute).count(number).text(row);
  append_entry(unwritten_, EntryType::kPoints, 0, content.bytes());
}

Status MetricFile::flush() {
  if (directory_.empty() || unwritten_.empty()) return {};
  if (!file_) {
    const uint64_t number = next_number_++;
    TUFT_ASSIGN(file_, DiskFile::open_to_append(path_of(number)));
    parts_.push_back({number, 0});
  }
  Part& part = parts_.back();
  TUFT_TRY(file_.cut(part.bytes));
  TUFT_TRY(file_.append(unwritten_));
  part.bytes += unwritten_.size();
  unwritten_.clear();
  if (part.bytes > std::min(kPartBytesMax, disk_bytes_max_ / 4)) {
    file_.close();
    described_.clear();
  }
  uint64_t all = 0;
  for (const Part& one : parts_) all += one.bytes;
  while (parts_.size() > 1 && all > disk_bytes_max_) {
    std::error_code ignored;
    std::filesystem::remove(path_of(parts_.front().number), ignored);
    all -= parts_.front().bytes;
    parts_.erase(parts_.begin());
  }
  disk_bytes_.store(all, std::memory_order_relaxed);
  return {};
}

}  // namespace tuft::telemetry_store::internal
