#include "api/json/wire_reader.h"

#include <algorithm>
#include <limits>

namespace tuft::api {

bool read_varint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::read_bytes(uint64_t size, std::string_view& bytes) {
  if (size > rest_.size()) return false;
  bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

bool WireReader::read_value(uint64_t wire_type, WireField& field) {
  uint64_t size = 0;
  switch (wire_type) {
    case 0:
      field.type = WireField::Type::kVarint;
      return read_varint(rest_, field.value);
    case 1:
      field.type = WireField::Type::kFixed64;
      return read_bytes(8, field.bytes);
    case 2:
      field.type = WireField::Type::kBytes;
      return read_varint(rest_, size) && read_bytes(size, field.bytes);
    case 5:
      field.type = WireField::Type::kFixed32;
      return read_bytes(4, field.bytes);
    default:
      return false;
  }
}

bool WireReader::next(WireField& field) {
  if (rest_.empty() || damaged_) return false;
  field = {};  // a varint has no bytes, not even those of the field before it
  uint64_t tag = 0;
  damaged_ = !read_varint(rest_, tag) || tag > std::numeric_limits<uint32_t>::max() || tag >> 3 == 0;
  if (damaged_) return false;
  field.number = static_cast<uint32_t>(tag >> 3);
  damaged_ = !read_value(tag & 7, field);
  return !damaged_;
}

int64_t count_varints(std::string_view packed) {
  return std::count_if(packed.begin(), packed.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace tuft::api
