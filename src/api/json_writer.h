// Writes JSON into a string. Commas come by themselves; keys and values must alternate as JSON wants it. Numbers are
// shortest-form; what is not finite is written as null, because JSON has no word for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tuft::api {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view value);
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);
  JsonWriter& number(float value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  // Text that is JSON already.
  JsonWriter& raw(std::string_view json);

  void reserve(size_t size_bytes) { text_.reserve(size_bytes); }
  std::string take() && { return std::move(text_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();
  void append_quoted(std::string_view value);

  std::string text_;
  bool comma_due_ = false;
};

}  // namespace tuft::api
