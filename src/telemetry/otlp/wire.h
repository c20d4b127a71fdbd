// Protobuf's wire format: a writer for the requests of OTLP and a reader for its responses. Internal to telemetry.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace tuft::telemetry::internal::otlp {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t tag(uint32_t field, WireType type) {
  return field << 3 | static_cast<uint32_t>(type);
}
constexpr size_t varint_size(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) * 9 + 64) / 64;
}

// Writes fields one after another into a buffer that grows and is reused.
class WireWriter {
 public:
  std::string_view view() const { return {bytes_.get(), size_}; }
  size_t size() const { return size_; }
  void clear() { size_ = 0; }

  // Returns room for `count` more bytes; call set_end() afterwards.
  char* room(size_t count) {
    if (capacity_ - size_ < count) [[unlikely]]
      grow(count);
    return bytes_.get() + size_;
  }
  void set_end(const char* end) { size_ = static_cast<size_t>(end - bytes_.get()); }

  static char* put_varint(char* out, uint64_t value) {
    while (value >= 0x80) {
      *out++ = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    *out++ = static_cast<char>(value);
    return out;
  }
  template <typename T>
  static char* put_raw(char* out, T value) {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(out, &value, sizeof value);
    return out + sizeof value;
  }
  static char* put_bytes(char* out, std::string_view bytes) {
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    return out + bytes.size();
  }

  void varint(uint32_t field, uint64_t value) {
    char* out = room(16);
    set_end(put_varint(put_varint(out, tag(field, WireType::kVarint)), value));
  }
  void fixed64(uint32_t field, uint64_t value) {
    char* out = room(16);
    set_end(put_raw(put_varint(out, tag(field, WireType::kFixed64)), value));
  }
  void number(uint32_t field, double value) { fixed64(field, std::bit_cast<uint64_t>(value)); }
  void fixed32(uint32_t field, uint32_t value) {
    char* out = room(16);
    set_end(put_raw(put_varint(out, tag(field, WireType::kFixed32)), value));
  }
  // Writes bytes, or a string known to be UTF-8.
  void bytes(uint32_t field, std::string_view value) {
    char* out = room(16 + value.size());
    out = put_varint(put_varint(out, tag(field, WireType::kBytes)), value.size());
    set_end(put_bytes(out, value));
  }
  // Writes a string. Invalid UTF-8 is replaced by U+FFFD.
  void text(uint32_t field, std::string_view value);
  // Appends bytes copied from another writer, without a check.
  void raw(std::string_view value) { set_end(put_bytes(room(value.size()), value)); }

  // Begins a nested message: fields written until close() are its content.
  size_t open(uint32_t field) {
    char* out = room(16);
    out = put_varint(out, tag(field, WireType::kBytes));
    set_end(out + kLengthBytes);
    return size_;
  }
  void close(size_t start);

 private:
  // Optimized for messages of 128 bytes to 16 KiB; the content of other messages is moved.
  static constexpr size_t kLengthBytes = 2;

  void grow(size_t count);

  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

inline bool is_ascii(std::string_view text) {
  const char* at = text.data();
  size_t left = text.size();
  uint64_t seen = 0;
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    seen |= word;
  }
  if (left != 0 && text.size() >= 8) {
    // Checks the last eight bytes, some of them for the second time.
    uint64_t word = 0;
    std::memcpy(&word, at + left - 8, 8);
    seen |= word;
    left = 0;
  }
  for (; left > 0; ++at, --left) seen |= static_cast<unsigned char>(*at);
  return (seen & 0x8080808080808080) == 0;
}

// Returns `text` if it is valid UTF-8, else the repaired text, which `repaired` then holds.
std::string_view repair_utf8(std::string_view text, std::string& repaired);

// Does the same, faster for ASCII.
inline std::string_view clean_utf8(std::string_view text, std::string& repaired) {
  return is_ascii(text) ? text : repair_utf8(text, repaired);
}

// Reads a message field by field. Malformed input ends the reading.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  // Moves to the next field. Returns false at the end.
  bool next();
  uint32_t field() const { return field_; }
  uint64_t number() const { return number_; }        // of varint and fixed fields
  std::string_view bytes() const { return bytes_; }  // of bytes, strings and messages
  size_t left() const { return rest_.size(); }       // bytes after the field

 private:
  bool read_varint(uint64_t& value);
  bool read_fixed(size_t size);

  std::string_view rest_;
  uint32_t field_ = 0;
  uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace tuft::telemetry::internal::otlp
