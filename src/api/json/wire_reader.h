// Reads the fields of a serialized protobuf message one by one, without memory of its own.
#pragma once

#include <cstdint>
#include <string_view>

namespace tuft::api {

struct WireField {
  // Groups, which no message of the API has, count as damage.
  enum class Type : uint8_t { kVarint, kFixed64, kBytes, kFixed32 };

  uint32_t number = 0;
  Type type = Type::kVarint;
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of the others: a part of the message
};

class WireReader {
 public:
  // `message` must outlive the views in the fields.
  explicit WireReader(std::string_view message) : rest_(message) {}

  // Reads the next field; nothing of the one before stays. Returns false at the end of the message, and where it is
  // damaged.
  bool next(WireField& field);
  bool damaged() const { return damaged_; }

 private:
  bool read_bytes(uint64_t size, std::string_view& bytes);
  bool read_value(uint64_t wire_type, WireField& field);

  std::string_view rest_;
  bool damaged_ = false;
};

// Reads a varint from the beginning of `bytes`, and removes it. Returns false if it is truncated or too long.
bool read_varint(std::string_view& bytes, uint64_t& value);

// Returns the number of varints in a packed field.
int64_t count_varints(std::string_view packed);

}  // namespace tuft::api
