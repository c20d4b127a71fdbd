// Converts between JSON and values.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// Returns kInvalidArgument if a string is not UTF-8 or the nesting is deeper than kMaxValueDepth.
Result<Value> value_of_json(Budget& budget, const nlohmann::ordered_json& json);

struct JsonStyle {
  bool ascii_only = false;
  bool pretty = false;  // one item per line, indented by `indent` for each level
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Returns the text that json.dumps of Python makes. Fails for values that JSON cannot represent.
Result<std::string> to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace tuft::chat
