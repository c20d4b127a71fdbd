#include "loss_graph/graph.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json_shape.h"
#include "loss_graph/parameters.h"
#include "loss_graph/value_reader.h"

namespace tuft::loss_graph {
namespace {

using Json = nlohmann::json;

constexpr size_t kNameMax = 128;
constexpr size_t kMetricNameMax = 64;  // of what is between "custom/" and the colon

Error invalid_graph(std::string what) {
  return invalid_argument("graph: " + std::move(what), "custom_loss_invalid");
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

bool is_metric(std::string_view name) {
  if (!name.starts_with("custom/")) return false;
  name.remove_prefix(7);
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon > kMetricNameMax) return false;
  const std::string_view suffix = name.substr(colon);
  return (suffix == ":sum" || suffix == ":mean") && std::all_of(name.begin(), name.begin() + colon, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/' || c == '-';
         });
}

struct Target {
  Place place = kTorch;
  std::string_view name;
};

// Returns the place and the name of an operation. torch has several modules, some private, for the same functions.
std::optional<Target> target_of(std::string_view op, std::string_view target) {
  if (op == "call_method") return Target{kMethod, target};
  constexpr std::array<std::pair<std::string_view, Place>, 11> kPrefixes = {{{"operator.", kOperator},
                                                                             {"_operator.", kOperator},
                                                                             {"math.", kMath},
                                                                             {"builtins.", kBuiltin},
                                                                             {"torch.Tensor.", kMethod},
                                                                             {"torch._C._special.special_", kTorch},
                                                                             {"torch._C._nn.", kTorch},
                                                                             {"torch.special.", kTorch},
                                                                             {"torch.functional.", kTorch},
                                                                             {"torch.nn.functional.", kTorch},
                                                                             {"torch.", kTorch}}};
  for (const auto& [prefix, place] : kPrefixes) {
    if (target.starts_with(prefix)) return Target{place, target.substr(prefix.size())};
  }
  if (target.find('.') == std::string_view::npos) return Target{kBuiltin, target};
  return std::nullopt;
}

class GraphReader {
 public:
  GraphReader(const std::vector<Input>& inputs, const Limits& limits) : inputs_(inputs), limits_(limits) {}

  Result<Graph> read(const Json& json) {
    TUFT_TRY(only(json, {"format", "nodes"}, "it"));
    const auto format = json.find("format");
    if (format != json.end() && (!format->is_number_integer() || *format != 1)) {
      return invalid_graph("its format is not 1, the only one that this server knows");
    }
    const auto nodes = json.find("nodes");
    if (nodes == json.end() || !nodes->is_array()) return invalid_graph("'nodes' must be a list");
    if (nodes->size() > limits_.nodes) {
      return Error{ErrorCode::kPayloadTooLarge,
                   "graph: it has " + std::to_string(nodes->size()) + " nodes; a custom loss has at most " +
                       std::to_string(limits_.nodes),
                   "custom_loss_too_large"};
    }
    for (const Json& node : *nodes) {
      if (has_output_) return invalid_graph("a node follows the output");
      TUFT_TRY(read_node(node));
    }
    if (!has_output_) return invalid_graph("it has no output node");
    return std::move(graph_);
  }

 private:
  // A member that this server does not know could change what the graph computes.
  static Status only(const Json& json, std::initializer_list<std::string_view> known, const std::string& which) {
    for (const auto& [name, value] : json.items()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      return invalid_graph(which + " has the member " + (is_name(name) ? "'" + name + "'" : "with a strange name") +
                           ", which this server does not know");
    }
    return {};
  }

  Result<std::string> text_of(const Json& node, const char* key) const {
    const auto found = node.find(key);
    if (found != node.end() && found->is_string() && is_name(found->get_ref<const std::string&>())) {
      return found->get<std::string>();
    }
    return invalid_graph("node " + std::to_string(graph_.nodes.size()) + ": '" + key +
                         "' must be a name of letters, digits, " + "dots and underscores with at most " +
                         std::to_string(kNameMax) + " characters");
  }

  Status read_node(const Json& json) {
    const std::string which = "node " + std::to_string(graph_.nodes.size());
    if (!json.is_object()) return invalid_graph(which + " is not an object");
    TUFT_TRY(only(json, {"op", "name", "target", "args", "kwargs"}, which));
    Node node;
    TUFT_ASSIGN(const std::string op, text_of(json, "op"));
    TUFT_ASSIGN(node.name, text_of(json, "name"));
    TUFT_ASSIGN(node.target, text_of(json, "target"));
    if (op == "placeholder") return add_placeholder(json, std::move(node));
    if (graph_.nodes.size() < inputs_.size()) return invalid_graph("it has fewer placeholders than inputs");
    if (op == "output") return read_output(json, node);
    if (op == "call_function" || op == "call_method") return add_call(op, json, std::move(node));
    return node_error(node, "nodes of the kind '" + op + "' are not allowed in a custom loss", "custom_loss_operation");
  }

  Status add(Node node) {
    if (!indices_.emplace(node.name, static_cast<int64_t>(graph_.nodes.size())).second) {
      return node_error(node, "another node has the same name");
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  Status add_placeholder(const Json& json, Node node) {
    ValueReader reader(indices_, limits_, values_left_);
    std::vector<Value> args;
    std::vector<std::pair<std::string, Value>> kwargs;
    Status read = read_arguments(json, reader, args, kwargs);
    if (!read.ok()) return about(node, std::move(read).error());
    if (!args.empty() || !kwargs.empty()) {
      return node_error(node, "an input has no default: 'args' and 'kwargs' of a placeholder must be empty");
    }
    const size_t index = graph_.nodes.size();
    if (index >= inputs_.size() || inputs_[index].name != node.target) {
      return node_error(node, "placeholders must be the inputs, in the same order and before all other nodes");
    }
    return add(std::move(node));
  }

  Status add_call(const std::string& op, const Json& json, Node node) {
    const auto target = target_of(op, node.target);
    if (target) node.operation = find_operation(target->name, target->place);
    if (node.operation == nullptr) {
      const std::string_view instead = substitute_for(target ? target->name : std::string_view());
      return node_error(
          node,
          "this operation is not allowed in a custom loss" +
              (instead.empty() ? "; docs/custom-losses.md lists those that are" : ": " + std::string(instead)),
          "custom_loss_operation");
    }
    ValueReader reader(indices_, limits_, values_left_);
    std::vector<Value> args;
    std::vector<std::pair<std::string, Value>> kwargs;
    Status read = read_arguments(json, reader, args, kwargs);
    if (!read.ok()) return about(node, std::move(read).error());
    auto arguments = lay_out(node.operation->parameters, std::move(args), kwargs);
    if (!arguments.ok()) return about(node, std::move(arguments).error());
    node.arguments = std::move(arguments).value();
    return add(std::move(node));
  }

  static Status read_arguments(const Json& json, ValueReader& reader, std::vector<Value>& args,
                               std::vector<std::pair<std::string, Value>>& kwargs) {
    if (const auto list = json.find("args"); list != json.end()) {
      if (!list->is_array()) return invalid_argument("'args' must be a list");
      for (const Json& item : *list) {
        TUFT_ASSIGN(Value value, reader.read(item));
        args.push_back(std::move(value));
      }
    }
    const auto named = json.find("kwargs");
    if (named == json.end()) return {};
    if (!named->is_object()) return invalid_argument("'kwargs' must be an object");
    for (const auto& [name, item] : named->items()) {
      if (!is_name(name)) return invalid_argument("a name in 'kwargs' is not one of a parameter");
      TUFT_ASSIGN(Value value, reader.read(item));
      kwargs.emplace_back(name, std::move(value));
    }
    return {};
  }

  static Error about(const Node& node, const Error& error) {
    Error out = node_error(node, error.message);
    out.code = error.code;
    return out;
  }

  Status read_output(const Json& json, const Node& node) {
    ValueReader reader(indices_, limits_, values_left_);
    std::vector<Value> args;
    std::vector<std::pair<std::string, Value>> kwargs;
    Status read = read_arguments(json, reader, args, kwargs);
    if (!read.ok()) return about(node, std::move(read).error());
    const bool pair = args.size() == 1 && args[0].is(Value::Kind::kList) && args[0].items.size() == 2 && kwargs.empty();
    if (!pair || !args[0].items[0].is(Value::Kind::kNode) || !args[0].items[1].is(Value::Kind::kDict)) {
      return node_error(node, "a custom loss returns its loss, a tensor, and a dict of metrics");
    }
    graph_.loss = std::move(args[0].items[0]);
    Value& metrics = args[0].items[1];
    if (metrics.keys.size() > limits_.metrics) {
      return node_error(node, "it returns more than " + std::to_string(limits_.metrics) + " metrics");
    }
    for (const std::string& name : metrics.keys) {
      if (!is_metric(name)) {
        return node_error(node, "metric " + std::to_string(graph_.metrics.size()) +
                                    " must be named custom/<name>:sum or custom/<name>:mean, in lower case");
      }
      graph_.metrics.push_back(name);
    }
    graph_.metric_values = std::move(metrics.items);
    has_output_ = true;
    return {};
  }

  const std::vector<Input>& inputs_;
  const Limits& limits_;
  Graph graph_;
  std::unordered_map<std::string, int64_t> indices_;  // of nodes, by name
  size_t values_left_ = limits_.values;
  bool has_output_ = false;
};

Status check_size(std::string_view text, const Limits& limits) {
  const auto too_large = [](const std::string& what) {
    return Error{ErrorCode::kPayloadTooLarge, "graph: " + what, "custom_loss_too_large"};
  };
  if (text.size() > limits.text_bytes) {
    return too_large("it has " + std::to_string(text.size()) + " bytes as JSON; a custom loss has at most " +
                     std::to_string(limits.text_bytes));
  }
  // The graph's own levels, and two for each list of an argument.
  if (json_shape(text).depth > 5 + 2 * limits.depth) {
    return too_large("its arguments are nested more than " + std::to_string(limits.depth) + " deep");
  }
  return {};
}

}  // namespace

Error node_error(const Node& node, const std::string& what, std::string reason) {
  return invalid_argument("node '" + node.name + "' (" + node.target + "): " + what, std::move(reason));
}

Result<Graph> read_graph(std::string_view text, const std::vector<Input>& inputs, const Limits& limits) {
  TUFT_TRY(check_size(text, limits));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid_graph("it is not a JSON object");
  return GraphReader(inputs, limits).read(json);
}

}  // namespace tuft::loss_graph
