#include "telemetry/otlp/wire.h"

#include <algorithm>

#include "base/utf8.h"
#include "telemetry/log/log_line.h"

namespace tuft::telemetry::internal::otlp {
std::string_view repair_utf8(std::string_view text, std::string& repaired) {
  if (is_utf8(text)) return text;
  repaired = to_utf8(text);
  return repaired;
}

void WireWriter::text(uint32_t field, std::string_view value) {
  std::string repaired;
  bytes(field, clean_utf8(value, repaired));
}

void WireWriter::close(size_t start) {
  const size_t length = size_ - start;
  const size_t needed = varint_size(length);
  if (needed != kLengthBytes) {
    if (needed > kLengthBytes) room(needed - kLengthBytes);
    char* content = bytes_.get() + start;
    std::memmove(content + needed - kLengthBytes, content, length);
    size_ = size_ + needed - kLengthBytes;
  }
  put_varint(bytes_.get() + start - kLengthBytes, length);
}

void WireWriter::grow(size_t count) {
  constexpr size_t kFirstCapacity = 4096;
  const size_t capacity = std::max({kFirstCapacity, capacity_ * 2, size_ + count});
  auto bytes = std::make_unique_for_overwrite<char[]>(capacity);
  if (size_ != 0) std::memcpy(bytes.get(), bytes_.get(), size_);
  bytes_ = std::move(bytes);
  capacity_ = capacity;
}

bool WireReader::read_varint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return false;
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool WireReader::read_fixed(size_t size) {
  if (rest_.size() < size) return false;
  number_ = 0;
  std::memcpy(&number_, rest_.data(), size);
  rest_.remove_prefix(size);
  return true;
}

bool WireReader::next() {
  uint64_t key = 0;
  if (rest_.empty() || !read_varint(key)) return false;
  field_ = static_cast<uint32_t>(key >> 3);
  number_ = 0;
  bytes_ = {};
  switch (static_cast<WireType>(key & 7)) {
    case WireType::kVarint:
      return read_varint(number_);
    case WireType::kFixed64:
      return read_fixed(8);
    case WireType::kFixed32:
      return read_fixed(4);
    case WireType::kBytes: {
      uint64_t size = 0;
      if (!read_varint(size) || size > rest_.size()) return false;
      bytes_ = rest_.substr(0, size);
      rest_.remove_prefix(size);
      return true;
    }
  }
  return false;
}

}  // namespace tuft::telemetry::internal::otlp
