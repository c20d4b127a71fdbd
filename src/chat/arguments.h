// The arguments of a call, and how they meet a function's parameters.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/value.h"

namespace tuft::chat {

struct CallArguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Parameter {
  Parameter(std::string_view its_name) : name(its_name) {}  // NOLINT(google-explicit-constructor)
  Parameter(std::string_view its_name, Value otherwise) : name(its_name), fallback(std::move(otherwise)) {}

  std::string_view name;
  std::optional<Value> fallback;  // none: the argument must be there
};

// One value for each parameter. Fails for what is missing, too much or unknown.
Result<Values> bind(std::string_view function, const CallArguments& arguments,
                    std::initializer_list<Parameter> parameters);

// An argument that must be an integer, a string.
Result<int64_t> integer_argument(const Value& value, std::string_view what);
Result<std::string_view> text_argument(const Value& value, std::string_view what);

}  // namespace tuft::chat
