// The methods of strings and dicts that a template may call.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "chat/arguments.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// Returns whether a template may name this method. A call can still fail because the object has no such method.
bool is_method(std::string_view name);

// Returns the method `name` of the object's type, bound to the object; nothing if there is none.
std::optional<Value> find_method(const Value& object, std::string_view name);

// Requires that find_method found the method.
Result<Value> call_method(Budget& budget, const Value& object, std::string_view name, const CallArguments& arguments);

// Returns the text with every `old` replaced.
Result<Value> replace_text(Budget& budget, std::string_view text, std::string_view old, std::string_view with);

}  // namespace tuft::chat
