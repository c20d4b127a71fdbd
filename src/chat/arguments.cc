#include "chat/arguments.h"

#include <algorithm>

namespace tuft::chat {

Result<Values> bind(std::string_view function, const CallArguments& arguments,
                    std::initializer_list<Parameter> parameters) {
  const std::string name(function);
  if (arguments.positional.size() > parameters.size()) return template_error(name + " got too many arguments");
  Values out;
  size_t used = 0;
  for (const Parameter& parameter : parameters) {
    const auto found =
        std::ranges::find_if(arguments.named, [&](const auto& one) { return one.first == parameter.name; });
    const bool is_named = found != arguments.named.end();
    used += is_named ? 1 : 0;
    const size_t index = out.size();
    if (index < arguments.positional.size()) {
      if (is_named) return template_error(name + " got two values for " + std::string(parameter.name));
      out.push_back(arguments.positional[index]);
    } else if (is_named) {
      out.push_back(found->second);
    } else if (parameter.fallback) {
      out.push_back(*parameter.fallback);
    } else {
      return template_error(name + " needs the argument " + std::string(parameter.name));
    }
  }
  if (used < arguments.named.size()) return template_error(name + " got an unknown keyword argument");
  return out;
}

Result<int64_t> integer_argument(const Value& value, std::string_view what) {
  if (const auto integer = value.integer()) return *integer;
  if (const auto* missing = value.as<Undefined>()) return template_error(*missing->why);
  return template_error(std::string(what) + " must be an integer, not " + std::string(value.type_name()));
}

Result<std::string_view> text_argument(const Value& value, std::string_view what) {
  if (const auto* text = value.text()) return std::string_view(*text);
  return template_error(std::string(what) + " must be a string, not " + std::string(value.type_name()));
}

}  // namespace tuft::chat
