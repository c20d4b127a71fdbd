// The parameters of an operation, and how the arguments of a call are laid out by them. Internal to the module.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "loss_graph/value.h"

namespace tuft::loss_graph {

struct Parameter {
  std::string_view name;
  bool required = true;
  bool takes_rest = false;
  bool is_ignored = false;
};

// Reads Operation::parameters.
std::vector<Parameter> parameters_of(std::string_view text);

// Returns one value for each parameter, kMissing where the caller gave none. The errors name parameters, and are to be
// put behind the name of the node.
Result<std::vector<Value>> lay_out(std::string_view parameters, std::vector<Value> args,
                                   const std::vector<std::pair<std::string, Value>>& kwargs);

}  // namespace tuft::loss_graph
