// The methods of strings, lists and dicts that a template may call.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "chat/arguments.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// Whether any type has a method of that name, also one whose call will be refused as Jinja's sandbox refuses it.
bool is_method(std::string_view name);

// What `object.name` is if it is a method of the object's type: the method, or undefined where the sandbox hides it.
std::optional<Value> find_method(const Value& object, std::string_view name);

Result<Value> call_method(Budget& budget, const Value& object, std::string_view name, const CallArguments& arguments);

// By type.
Result<Value> call_text_method(Budget& budget, const std::string& text, std::string_view name,
                               const CallArguments& arguments);
bool is_text_method(std::string_view name);

}  // namespace tuft::chat
