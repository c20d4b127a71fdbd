#include "api/json/observe_text.h"

#include <algorithm>
#include <simdjson.h>

#include "api/json/observe_json.h"
#include "base/utf8.h"

namespace tuft::api {

std::string utf8_text(std::string_view text) {
  std::string copy(text);
  if (is_utf8(text)) return copy;
  std::replace_if(
      copy.begin(), copy.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return copy;
}

bool is_json(std::string_view text) {
  if (text.empty()) return false;
  thread_local simdjson::dom::parser parser;
  simdjson::dom::element root;
  return parser.parse(text.data(), text.size()).get(root) == simdjson::SUCCESS;
}

void write_text(JsonWriter& json, std::string_view key, std::string_view value) {
  json.key(key).string(utf8_text(value));
}

void write_or_null(JsonWriter& json, std::string_view key, std::string_view value) {
  json.key(key);
  if (value.empty()) {
    json.null();
  } else {
    json.string(utf8_text(value));
  }
}

void write_time(JsonWriter& json, std::string_view key, Nanos time) {
  json.key(key);
  if (time == 0) {
    json.null();
  } else {
    write_micros(json, time);
  }
}

}  // namespace tuft::api
