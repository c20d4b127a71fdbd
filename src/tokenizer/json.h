// Reading the parts of a tokenizer.json with messages that name the file and the part.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace tuft::tokenizer {

using Json = nlohmann::json;

Error malformed(std::string_view origin, const std::string& what);
// A kind of tokenizer that is not read.
Error unsupported(std::string_view origin, const std::string& what);

// "type" of a part; "" for null and for what has none.
std::string type_of(const Json& part);
// The member, or null.
const Json& member(const Json& object, const char* key);
bool flag(const Json& object, const char* key, bool otherwise);
std::string text(const Json& object, const char* key, std::string_view otherwise = "");

// A "Sequence" is its parts in order (under `key`), anything else itself; nested ones are flattened.
std::vector<const Json*> parts_of(const Json& part, const char* key);

// An id within the bounds that tokenizers have.
bool to_id(const Json& value, int32_t* id);

}  // namespace tuft::tokenizer
