// The nodes of a graph, and how they are read from JSON. Internal to the module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loss_graph/limits.h"
#include "loss_graph/operation.h"
#include "loss_graph/program.h"
#include "loss_graph/value.h"

namespace tuft::loss_graph {

struct Node {
  std::string name;
  std::string target;                    // as the client wrote it
  const Operation* operation = nullptr;  // null: a placeholder, the graph's input of the same index
  std::vector<Value> arguments = {};     // one for each parameter
};

struct Graph {
  std::vector<Node> nodes;           // without the output; the placeholders come first
  std::vector<std::string> metrics;  // names
  Value loss;                        // a reference to a node
  std::vector<Value> metric_values;
};

// Returns kInvalidArgument, which names the node, or kPayloadTooLarge.
Result<Graph> read_graph(std::string_view text, const std::vector<Input>& inputs, const Limits& limits);

// Returns "node 'exp' (torch.exp): <what>", as an error about that node.
Error node_error(const Node& node, const std::string& what, std::string reason = "custom_loss_invalid");

}  // namespace tuft::loss_graph
