// Writes JSON into a string. Inserts commas; the caller must write keys and values in the order that JSON requires.
// Numbers have their shortest form; NaN and infinity become null, because JSON cannot express them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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
  // An object with these strings.
  JsonWriter& strings(const std::map<std::string, std::string>& values);
  // Appends text that is already JSON.
  JsonWriter& raw(std::string_view json);

  void reserve(size_t size_bytes) { text_.reserve(size_bytes); }
  size_t size() const { return text_.size(); }
  std::string take() && { return std::move(text_); }
  // Returns the text so far; what is written next continues it.
  std::string take_piece() { return std::exchange(text_, {}); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();
  void append_quoted(std::string_view value);

  std::string text_;
  bool comma_due_ = false;
};

}  // namespace tuft::api
