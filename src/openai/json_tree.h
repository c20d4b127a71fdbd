// Parses JSON in a time that grows only linearly with the text (apart from sorting the names of an object), whatever
// the text is. nlohmann's own parser searches each name of an ordered object among all names before it.
#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tuft::openai {

using Json = nlohmann::ordered_json;

// The members of an object keep their order. If a name comes twice, its first place and its last value count, as in
// nlohmann's parser. Returns nothing if the text is not valid JSON.
std::optional<Json> parse_json(std::string_view text);

}  // namespace tuft::openai
