#include "api/json/json_writer.h"

#include <cmath>

#include "base/text.h"

namespace tuft::api {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

void JsonWriter::separate() {
  if (comma_due_) text_.push_back(',');
  comma_due_ = true;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_.push_back(bracket);
  comma_due_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_.push_back(bracket);
  comma_due_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_quoted(name);
  text_.push_back(':');
  comma_due_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  separate();
  append_quoted(value);
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  separate();
  append_number(text_, value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return null();
  separate();
  append_number(text_, value);
  return *this;
}

JsonWriter& JsonWriter::number(float value) {
  if (!std::isfinite(value)) return null();
  separate();
  append_number(text_, value);
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  return raw(value ? "true" : "false");
}

JsonWriter& JsonWriter::null() {
  return raw("null");
}

JsonWriter& JsonWriter::strings(const std::map<std::string, std::string>& values) {
  begin_object();
  for (const auto& [name, value] : values) key(name).string(value);
  return end_object();
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  text_.append(json);
  return *this;
}

void JsonWriter::append_quoted(std::string_view value) {
  text_.push_back('"');
  for (const char c : value) {
    switch (c) {
      case '"':
        text_.append("\\\"");
        break;
      case '\\':
        text_.append("\\\\");
        break;
      case '\n':
        text_.append("\\n");
        break;
      case '\r':
        text_.append("\\r");
        break;
      case '\t':
        text_.append("\\t");
        break;
      default:
        if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7f) {
          text_.append("\\u00");
          text_.push_back(kHexDigits[byte >> 4]);
          text_.push_back(kHexDigits[byte & 15]);
        } else {
          text_.push_back(c);
        }
    }
  }
  text_.push_back('"');
}

}  // namespace tuft::api
