#include "mcp/json.h"

#include <cmath>

#include "base/time_text.h"

namespace tuft::mcp {

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json time_json(Nanos wall) {
  return wall > 0 ? Json(time_text(wall)) : Json();
}

Json millis_json(Nanos duration) {
  return static_cast<double>(duration) / static_cast<double>(kMillisecond);
}

Json number_json(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json text_json(std::string_view text) {
  return text.empty() ? Json() : Json(std::string(text));
}

Json short_text_json(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text_json(text);
  // Not in the middle of a character.
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace tuft::mcp
