// The arguments of a call, and their binding to the parameters of a function.
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
  std::optional<Value> fallback;  // nothing: the argument is required
};

// Returns one value for each parameter. Fails for missing, surplus and unknown arguments.
Result<Values> bind(std::string_view function, const CallArguments& arguments,
                    std::initializer_list<Parameter> parameters);

// Return the argument as an integer or a string, and fail for other types. `what` names it in the error message.
Result<int64_t> integer_argument(const Value& value, std::string_view what);
Result<std::string_view> text_argument(const Value& value, std::string_view what);

}  // namespace tuft::chat
