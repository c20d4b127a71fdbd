// Helpers to read the parts of a tokenizer.json, and errors that name the file and the part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace tuft::tokenizer {

using Json = nlohmann::json;

// kInvalidArgument: the file is malformed.
Error malformed(std::string_view origin, const std::string& what);
// kUnimplemented: a kind of tokenizer that is not supported.
Error unsupported(std::string_view origin, const std::string& what);

// Returns the "type" of a part, or "" if it has none.
std::string type_of(const Json& part);
// Returns the member, or JSON null if it does not exist.
const Json& member(const Json& object, const char* key);
bool flag(const Json& object, const char* key, bool otherwise);
std::string text(const Json& object, const char* key, std::string_view otherwise = "");

// Returns the parts of a "Sequence", which are under `key`, in order and without nesting; any other part alone.
std::vector<const Json*> parts_of(const Json& part, const char* key);

// Reads a token id. Returns false if the value is not an id.
bool to_id(const Json& value, int32_t* id);

}  // namespace tuft::tokenizer
