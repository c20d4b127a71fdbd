#include "tokenizer/json.h"

#include <nlohmann/json.hpp>

namespace tuft::tokenizer {
namespace {

constexpr int64_t kIdMax = (1 << 24) - 1;

}  // namespace

Error malformed(std::string_view origin, const std::string& what) {
  return invalid_argument(std::string(origin) + ": " + what, "bad_tokenizer");
}

Error unsupported(std::string_view origin, const std::string& what) {
  return {ErrorCode::kUnimplemented, std::string(origin) + ": " + what, "unsupported_tokenizer"};
}

std::string type_of(const Json& part) {
  return text(part, "type");
}

const Json& member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool flag(const Json& object, const char* key, bool otherwise) {
  const Json& value = member(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string text(const Json& object, const char* key, std::string_view otherwise) {
  const Json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string(otherwise);
}

std::vector<const Json*> parts_of(const Json& part, const char* key) {
  if (part.is_null()) return {};
  if (type_of(part) != "Sequence") return {&part};
  std::vector<const Json*> out;
  for (const Json& inner : member(part, key)) {
    for (const Json* leaf : parts_of(inner, key)) out.push_back(leaf);
  }
  return out;
}

bool to_id(const Json& value, int32_t* id) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kIdMax) return false;
  *id = value.get<int32_t>();
  return true;
}

}  // namespace tuft::tokenizer
