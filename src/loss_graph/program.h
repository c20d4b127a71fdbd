// Program: a custom loss, uploaded by a client as a torch.fx graph in JSON, that is checked once and then evaluated for
// each datum, with its gradient.
//
// The text is what the SDK's ServiceClient.create_custom_loss sends as "graph" (format 1). A graph may call only the
// operations of a closed list (docs/custom-losses.md); it cannot branch on values, loop, or change an array. Arrays
// have at most two dimensions. Everything is computed in float64, whatever dtype the graph names.
//
// What an evaluation costs follows from the shapes of the inputs alone, so that it can be charged before it is spent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "loss_graph/limits.h"

namespace tuft::loss_graph {

struct Input {
  std::string name;
  int rank = 0;  // 0, 1 or 2
};

// The shape and type of an input, on which the cost of an evaluation depends.
struct InputType {
  std::vector<int64_t> shape;
  bool is_float = true;  // false: integers
  friend bool operator==(const InputType&, const InputType&) = default;
};

// The cost of an evaluation.
struct Cost {
  // That it computes, where a reduction counts those that it reads and an element of a slow function counts several
  // times; at most 16 bytes for each.
  int64_t elements = 0;
  // The arrays that it makes and the values in the arguments of their operations, in lists or not. Each evaluation is
  // planned, and so is each call of cost(): about a tenth of a microsecond for each.
  int64_t planned = 0;
};

// An input of one datum: values row-major, as many as the shape says.
struct Tensor {
  std::vector<int64_t> shape;
  std::variant<std::span<const float>, std::span<const int64_t>> values;
};

struct Outcome {
  double loss = 0;
  std::vector<double> gradient;  // d(loss)/d(logprobs), row-major
  std::vector<double> metrics;   // in the order of Program::metrics()
};

// A metric's name is "custom/<name>:sum" or "custom/<name>:mean".
inline bool is_mean_metric(std::string_view name) {
  return name.ends_with(":mean");
}

struct Node;
struct Plan;
struct Value;

// Immutable, and safe to use from several threads.
class Program {
 public:
  // Checks a graph. Returns kInvalidArgument (reason custom_loss_invalid, or custom_loss_operation for an operation
  // that is not allowed), which names the node and what to use instead, or kPayloadTooLarge with the limit.
  static Result<std::shared_ptr<const Program>> parse(std::string_view graph, std::vector<Input> inputs,
                                                      const Limits& limits = {});
  ~Program();

  // The first is `logprobs`, of rank 1 or 2.
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<std::string>& metrics() const { return metrics_; }

  // Plans an evaluation without running it. Returns kInvalidArgument if the shapes do not fit the graph or the
  // evaluation is over a limit, with the node.
  Result<Cost> cost(std::span<const InputType> inputs) const;

  // Returns kInvalidArgument as cost() does, and also for an index out of range and for a loss, gradient or metric that
  // is infinite or NaN (reason custom_loss_not_finite). Messages hold no values. Throws std::bad_alloc.
  Result<Outcome> evaluate(std::span<const Tensor> inputs) const;

 private:
  Program();
  Result<Plan> plan(std::span<const InputType> inputs) const;

  Limits limits_;
  std::vector<Input> inputs_;
  std::vector<std::string> metrics_;
  std::vector<Node> nodes_;
  std::vector<Value> results_;  // the loss, then the metrics
};

}  // namespace tuft::loss_graph
