#include "telemetry_store/memory_segment.h"

#include <algorithm>
#include <cstring>

namespace tuft::telemetry_store::internal {
namespace {

constexpr size_t kContextStringMax = 1024;
constexpr size_t kContextsMax = 4096;
// A user with more services or scopes in a segment would fill it before its time. More of them have one name.
constexpr uint32_t kContextsOfUserMax = 256;
constexpr const char* kOtherServices = "(others)";
// For small records; larger ones fill the filter less.
constexpr size_t kRecordBytesExpected = 256;

// opentelemetry.proto.trace.v1.Span.SpanKind
constexpr int kKindServer = 2;
constexpr int kKindConsumer = 5;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

std::string encode_context(const Context& context) {
  std::string out;
  for (const std::string* text : {&context.service, &context.worker, &context.scope, &context.owner}) {
    const auto size = static_cast<uint32_t>(std::min(text->size(), kContextStringMax));
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out.append(*text, 0, size);
  }
  out.push_back(context.of_program ? 1 : 0);
  return out;
}

bool decode_context(std::string_view& bytes, Context& out) {
  for (std::string* text : {&out.service, &out.worker, &out.scope, &out.owner}) {
    uint32_t size = 0;
    if (bytes.size() < sizeof size) return false;
    std::memcpy(&size, bytes.data(), sizeof size);
    bytes.remove_prefix(sizeof size);
    if (size > kContextStringMax || size > bytes.size()) return false;
    *text = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  if (bytes.empty()) return false;
  out.of_program = bytes.front() != 0;
  bytes.remove_prefix(1);
  return true;
}

MemorySegment::MemorySegment(uint64_t number, size_t bytes_expected)
    : Segment(number), bloom_(bytes_expected / kRecordBytesExpected) {
  // Space that is not touched costs no memory.
  bytes_.reserve(bytes_expected);
}

template <typename T>
void MemorySegment::put(Table table, Column column, T value) {
  std::vector<char>& values = columns_[static_cast<size_t>(table)][static_cast<size_t>(column)];
  const size_t size = values.size();
  values.resize(size + sizeof value);
  std::memcpy(values.data() + size, &value, sizeof value);
}

uint32_t MemorySegment::intern(Column column, std::string_view whole) {
  if (whole.empty()) return 0;
  const std::string_view text = cut_string(whole);
  uint32_t& last = last_string_[static_cast<size_t>(column)];
  if (strings_.text(last) == text) return last;
  const size_t count = strings_.count();
  last = strings_.intern(text);
  if (last == count) bloom_.add(hash_of(text));
  return last;
}

uint32_t MemorySegment::context_number(const Context& context) {
  if (last_context_ < contexts_.size() && contexts_[last_context_] == context) return last_context_;
  const std::string encoded = encode_context(context);
  uint32_t& of_owner = contexts_of_owner_[context.owner];
  if (!context.owner.empty() && of_owner >= kContextsOfUserMax && !context_numbers_.contains(encoded)) {
    const Context others{kOtherServices, context.worker, {}, context.owner, context.of_program};
    if (!(context == others)) return context_number(others);
  }
  const auto [found, added] = context_numbers_.try_emplace(encoded, static_cast<uint32_t>(contexts_.size()));
  last_context_ = found->second;
  if (!added) return last_context_;
  ++of_owner;
  contexts_.push_back(context);
  context_bytes_ += sizeof context + 2 * encoded.size();
  append_entry(bytes_, EntryType::kContext, last_context_, encoded);
  for (const std::string* text : {&context.service, &context.owner}) bloom_.add(hash_of(cut_string(*text)));
  return last_context_;
}

MemorySegment::Place MemorySegment::append_bytes(EntryType type, const Context& context, std::string_view bytes) {
  Place place;
  place.context = context_number(context);
  place.sum = append_entry(bytes_, type, place.context, bytes);
  place.position = bytes_.size() - bytes.size();
  extent_.bytes = bytes_.size();
  return place;
}

void MemorySegment::add_common(Table table, const Place& place, const RecordView& record, Nanos time, Nanos now) {
  put(table, Column::kTraceHigh, record.trace.high);
  put(table, Column::kTraceLow, record.trace.low);
  put(table, Column::kId, record.span);
  put(table, Column::kTime, time);
  put(table, Column::kPosition, static_cast<uint32_t>(place.position));
  put(table, Column::kSize, static_cast<uint32_t>(record.bytes.size()));
  put(table, Column::kSum, place.sum);
  put(table, Column::kContext, place.context);
  put(table, Column::kName, intern(Column::kName, record.name));
  for (size_t key = 0; key < kKeys; ++key) {
    const Column column = column_of(static_cast<Key>(key));
    put(table, column, intern(column, record.keys[key]));
  }
  if (record.trace.valid()) bloom_.add(hash_of_trace(record.trace));

  const auto at = static_cast<size_t>(table);
  const bool first = extent_.rows[at]++ == 0;
  extent_.oldest[at] = first ? time : std::min(extent_.oldest[at], time);
  extent_.newest[at] = first ? time : std::max(extent_.newest[at], time);
  if (extent_.arrived_first == 0) extent_.arrived_first = now;
  extent_.arrived_last = std::max(extent_.arrived_last, now);
}

void MemorySegment::add_row(const Place& place, const SpanView& span, Nanos now) {
  const uint32_t row = extent_.rows[static_cast<size_t>(Table::kSpans)];
  add_common(Table::kSpans, place, span, span.start, now);
  const bool entry = span.parent == 0 || span.kind == kKindServer || span.kind == kKindConsumer;
  put(Table::kSpans, Column::kFlags,
      static_cast<uint8_t>((span.kind & span_flag::kKind) | (span.failed ? span_flag::kFailed : 0) |
                           (entry ? span_flag::kEntry : 0)));
  put(Table::kSpans, Column::kParent, span.parent);
  put(Table::kSpans, Column::kDuration, span.duration);
  if (span.links == 0) return;
  read_links(span.bytes, [&](const TraceId& trace, uint64_t id) TUFT_REQUIRES(mutex_) {
    put(Table::kLinks, Column::kTraceHigh, trace.high);
    put(Table::kLinks, Column::kTraceLow, trace.low);
    put(Table::kLinks, Column::kId, id);
    put(Table::kLinks, Column::kPosition, row);
    bloom_.add(hash_of_link(trace));
    ++extent_.rows[static_cast<size_t>(Table::kLinks)];
  });
}

void MemorySegment::add_row(const Place& place, const LogView& log, Nanos now) {
  add_common(Table::kLogs, place, log, log.time, now);
  put(Table::kLogs, Column::kFlags, static_cast<uint8_t>(log.severity));
}

void MemorySegment::append(const Context& context, const SpanView& span, Nanos now) {
  MutexLock lock(mutex_);
  add_row(append_bytes(EntryType::kSpan, context, span.bytes), span, now);
}

void MemorySegment::append(const Context& context, const LogView& log, Nanos now) {
  MutexLock lock(mutex_);
  add_row(append_bytes(EntryType::kLog, context, log.bytes), log, now);
}

void MemorySegment::append_file(std::string file, Nanos now) {
  MutexLock lock(mutex_);
  bytes_ = std::move(file);
  extent_.bytes = bytes_.size();
  // Context 0 is for records whose context is damaged: they belong to nobody.
  contexts_.emplace_back();
  std::unordered_map<uint32_t, uint32_t> numbers;
  const auto add_context = [&](const Entry& entry) TUFT_REQUIRES(mutex_) {
    Context context;
    std::string_view rest = entry.content;
    if (!decode_context(rest, context)) return;
    numbers[entry.context] = static_cast<uint32_t>(contexts_.size());
    for (const std::string* text : {&context.service, &context.owner}) bloom_.add(hash_of(cut_string(*text)));
    contexts_.push_back(std::move(context));
  };
  read_entries(bytes_, [&](const Entry& entry) TUFT_REQUIRES(mutex_) {
    const auto known = numbers.find(entry.context);
    const Place place{entry.position, entry.sum, known == numbers.end() ? 0 : known->second};
    SpanView span;
    LogView log;
    if (entry.type == EntryType::kContext) {
      add_context(entry);
    } else if (entry.type == EntryType::kSpan && read_span(entry.content, span)) {
      limit_times(span, now);
      add_row(place, span, std::min(now, span.start + span.duration));
    } else if (entry.type == EntryType::kLog && read_log(entry.content, log)) {
      log.time = possible_time(log.time, now);
      add_row(place, log, std::min(now, log.time));
    }
  });
}

MemorySegment::Content MemorySegment::content() const {
  MutexLock lock(mutex_);
  Content content;
  content.extent = extent_;
  for (size_t table = 0; table < kTables; ++table) {
    for (size_t column = 0; column < kColumns; ++column)
      content.columns[table][column].assign(columns_[table][column].data(), columns_[table][column].size());
  }
  content.string_ends = bytes_of(strings_.ends());
  content.string_hashes = bytes_of(strings_.hashes());
  content.string_blob = strings_.blob();
  for (const Context& context : contexts_) content.contexts += encode_context(context);
  content.bloom = bloom_;
  return content;
}

bool MemorySegment::is_full(size_t bytes_max) const {
  MutexLock lock(mutex_);
  return bytes_.size() >= bytes_max || contexts_.size() >= kContextsMax;
}

size_t MemorySegment::memory_bytes() const {
  MutexLock lock(mutex_);
  size_t bytes = bytes_.size() + strings_.bytes() + bloom_.bytes().size() + context_bytes_;
  for (const auto& table : columns_) {
    for (const auto& column : table) bytes += column.capacity();
  }
  return bytes;
}

Extent MemorySegment::extent() const {
  MutexLock lock(mutex_);
  return extent_;
}

bool MemorySegment::may_have(uint64_t hash) const {
  MutexLock lock(mutex_);
  return bloom_.may_contain(hash);
}

std::optional<uint32_t> MemorySegment::find_string(std::string_view text) const {
  MutexLock lock(mutex_);
  return strings_.find(text);
}

Strings MemorySegment::strings() const {
  MutexLock lock(mutex_);
  return {strings_.ends(), std::string(strings_.blob())};
}

std::string MemorySegment::string(uint32_t number) const {
  MutexLock lock(mutex_);
  return std::string(strings_.text(number));
}

std::vector<Context> MemorySegment::contexts() const {
  MutexLock lock(mutex_);
  return contexts_;
}

std::string MemorySegment::read(uint64_t position, size_t size) const {
  MutexLock lock(mutex_);
  if (position > bytes_.size() || size > bytes_.size() - position) return {};
  return bytes_.substr(position, size);
}

bool MemorySegment::copy_values(Table table, Column column, size_t first, size_t count, void* out) const {
  MutexLock lock(mutex_);
  const std::vector<char>& values = columns_[static_cast<size_t>(table)][static_cast<size_t>(column)];
  const size_t width = width_of(column);
  if ((first + count) * width > values.size()) return false;
  if (count != 0) std::memcpy(out, values.data() + first * width, count * width);
  return true;
}

}  // namespace tuft::telemetry_store::internal
