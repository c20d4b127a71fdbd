// Reads protobuf's wire format from bytes that anybody may have sent. Internal to telemetry_store.
//
// Nothing is trusted: a length that exceeds the message, an unknown wire type or a number without an end makes the
// reader stop and ok() false. Nothing is copied and nothing is recursive.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/clock.h"

namespace tuft::telemetry_store::internal {

// A time that does not fit into Nanos becomes the largest.
inline Nanos nanos_of(uint64_t value) {
  return static_cast<Nanos>(std::min<uint64_t>(value, std::numeric_limits<Nanos>::max()));
}

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

class WireReader {
 public:
  explicit WireReader(std::string_view message) : at_(message.data()), end_(message.data() + message.size()) {}

  // Moves to the next field. Returns false at the end and at the first malformed field.
  bool next() {
    uint64_t key = 0;
    if (at_ == end_ || !read_varint(key)) return false;
    field_ = static_cast<uint32_t>(key >> 3);
    type_ = static_cast<WireType>(key & 7);
    if (key >> 32 != 0 || field_ == 0) return fail();
    switch (type_) {
      case WireType::kBytes: {
        uint64_t size = 0;
        if (!read_varint(size) || size > static_cast<uint64_t>(end_ - at_)) return fail();
        bytes_ = {at_, static_cast<size_t>(size)};
        at_ += size;
        return true;
      }
      case WireType::kVarint:
        return read_varint(number_);
      case WireType::kFixed64:
        return read_fixed<uint64_t>();
      case WireType::kFixed32:
        return read_fixed<uint32_t>();
    }
    return fail();
  }

  uint32_t field() const { return field_; }
  WireType type() const { return type_; }
  bool is_bytes() const { return type_ == WireType::kBytes; }
  // Of a field of another type: the value of an earlier field or nothing. Check the type where it matters.
  uint64_t number() const { return type_ == WireType::kBytes ? 0 : number_; }
  double decimal() const { return type_ == WireType::kFixed64 ? std::bit_cast<double>(number_) : 0; }
  std::string_view bytes() const { return type_ == WireType::kBytes ? bytes_ : std::string_view{}; }
  // False after a malformed field.
  bool ok() const { return ok_; }

 private:
  bool fail() {
    ok_ = false;
    at_ = end_;
    return false;
  }

  bool read_varint(uint64_t& value) {
    uint64_t result = 0;
    for (int shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at_++);
      result |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        value = result;
        return true;
      }
    }
    return fail();
  }

  template <typename T>
  bool read_fixed() {
    if (static_cast<size_t>(end_ - at_) < sizeof(T)) return fail();
    T value{};
    std::memcpy(&value, at_, sizeof value);
    number_ = value;
    at_ += sizeof value;
    return true;
  }

  const char* at_;
  const char* end_;
  uint32_t field_ = 0;
  WireType type_ = WireType::kVarint;
  uint64_t number_ = 0;
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace tuft::telemetry_store::internal
