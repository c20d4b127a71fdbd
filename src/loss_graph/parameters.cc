#include "loss_graph/parameters.h"

#include <algorithm>
#include <array>

namespace tuft::loss_graph {
namespace {

// Other names under which torch takes the same parameter.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kAliases = {{{"self", "input"},
                                                                                    {"x", "input"},
                                                                                    {"axis", "dim"},
                                                                                    {"keepdims", "keepdim"},
                                                                                    {"x2", "other"},
                                                                                    {"ddof", "correction"},
                                                                                    {"size", "shape"}}};

size_t index_of(const std::vector<Parameter>& parameters, std::string_view name) {
  const auto find = [&](std::string_view wanted) {
    return static_cast<size_t>(std::find_if(parameters.begin(), parameters.end(),
                                            [&](const Parameter& parameter) { return parameter.name == wanted; }) -
                               parameters.begin());
  };
  const size_t exact = find(name);
  if (exact < parameters.size()) return exact;
  for (const auto& [alias, real] : kAliases) {
    if (alias == name) return find(real);
  }
  return parameters.size();
}

std::string names_of(const std::vector<Parameter>& parameters) {
  std::string out;
  for (const Parameter& parameter : parameters) {
    if (!parameter.is_ignored) out += (out.empty() ? "" : ", ") + std::string(parameter.name);
  }
  return out.empty() ? "none" : out;
}

// Moves the positional arguments from `begin` on into one list.
Value rest_of(std::vector<Value>& args, size_t begin) {
  if (args.size() == begin + 1 && args[begin].is(Value::Kind::kList)) return std::move(args[begin]);
  std::vector<Value> rest(std::make_move_iterator(args.begin() + static_cast<std::ptrdiff_t>(begin)),
                          std::make_move_iterator(args.end()));
  return Value::list(std::move(rest));
}

}  // namespace

std::vector<Parameter> parameters_of(std::string_view text) {
  std::vector<Parameter> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    Parameter parameter{text.substr(0, end)};
    if (parameter.name.ends_with("?")) {
      parameter.required = false;
      parameter.name.remove_suffix(1);
    } else if (parameter.name.ends_with("...")) {
      parameter.takes_rest = true;
      parameter.name.remove_suffix(3);
    } else if (parameter.name.ends_with("=")) {
      parameter.required = false;
      parameter.is_ignored = true;
      parameter.name.remove_suffix(1);
    }
    out.push_back(parameter);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

Result<std::vector<Value>> lay_out(std::string_view text, std::vector<Value> args,
                                   const std::vector<std::pair<std::string, Value>>& kwargs) {
  const std::vector<Parameter> parameters = parameters_of(text);
  std::vector<Value> out(parameters.size());
  for (size_t i = 0; i < args.size(); ++i) {
    if (i >= parameters.size() || parameters[i].is_ignored) {
      return invalid_argument("it has " + std::to_string(args.size()) + " arguments; its parameters are " +
                              names_of(parameters));
    }
    if (parameters[i].takes_rest) {
      out[i] = rest_of(args, i);
      break;
    }
    out[i] = std::move(args[i]);
  }
  for (const auto& [name, value] : kwargs) {
    const size_t i = index_of(parameters, name);
    if (i == parameters.size()) {
      return invalid_argument("it has no parameter '" + name.substr(0, 64) + "'; its parameters are " +
                              names_of(parameters));
    }
    if (!out[i].is(Value::Kind::kMissing)) return invalid_argument("its argument '" + name + "' is given twice");
    if (parameters[i].is_ignored && value.is(Value::Kind::kBool) && value.integer != 0) {
      return invalid_argument("its argument '" + name + "' must not be True");
    }
    out[i] = value;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!out[i].is(Value::Kind::kMissing) || !parameters[i].required) continue;
    if (parameters[i].takes_rest)
      return invalid_argument("it lacks its arguments '" + std::string(parameters[i].name) + "'");
    return invalid_argument("it lacks its argument '" + std::string(parameters[i].name) + "'");
  }
  return out;
}

}  // namespace tuft::loss_graph
