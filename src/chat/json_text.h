// JSON in and out: requests to values, and json.dumps.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// kInvalidArgument where a string is not UTF-8 or the nesting is too deep.
Result<Value> value_of_json(Budget& budget, const nlohmann::ordered_json& json);

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool pretty = false;  // every item on a line of its own, `indent` once a level
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps(value). Fails for what JSON cannot say.
Result<std::string> to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace tuft::chat
