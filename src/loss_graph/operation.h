// The operations that a graph may call, and how each becomes steps of a plan. Internal to the module.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loss_graph/plan.h"
#include "loss_graph/value.h"

namespace tuft::loss_graph {

struct Operation;

// One call of an operation with its arguments, in the order of Operation::parameters. Each getter notes a problem that
// names the parameter and returns a neutral value. An argument that is None counts as left out.
class Call {
 public:
  Call(const Operation& operation, std::vector<Value> arguments, PlanBuilder& builder)
      : operation_(operation), arguments_(std::move(arguments)), builder_(builder) {}

  std::string_view name() const;
  const Value& value(size_t i) const { return arguments_[i]; }
  bool has(size_t i) const { return arguments_[i].is_given(); }
  bool is_array(size_t i) const { return arguments_[i].is(Value::Kind::kArray); }
  // An array; a number becomes one without dimensions.
  int array(size_t i) const;
  int64_t integer(size_t i, int64_t fallback) const;
  int64_t integer(size_t i) const;  // required
  double number(size_t i, double fallback) const;
  bool flag(size_t i, bool fallback) const;
  Dtype dtype(size_t i, Dtype fallback) const;
  // A list of integers; a single one counts as a list.
  std::vector<int64_t> integers(size_t i) const;
  // Dimensions of an array of this rank, each once, in rising order; none if the argument is left out.
  std::vector<int> dims(size_t i, int rank) const;
  // The shape that a list of sizes asks for.
  Shape shape(size_t i) const;
  Shape shape(size_t i, const std::vector<int64_t>& sizes) const;
  int fail(size_t i, std::string_view rule) const;

 private:
  const Operation& operation_;
  const std::vector<Value> arguments_;
  PlanBuilder& builder_;
};

// Adds the steps of a call and returns what it makes.
using Lower = Value (*)(PlanBuilder& builder, const Call& call);

// The places where an operation is found; it may be in several.
enum Place : uint8_t {
  kTorch = 1,     // torch.x, torch.nn.functional.x, torch.special.x
  kMethod = 2,    // a method of a tensor
  kOperator = 4,  // operator.x: Python's operators and indexing
  kMath = 8,      // math.x
  kBuiltin = 16,  // builtins.x
};
inline constexpr unsigned kTensor = kTorch | kMethod;

struct Operation {
  std::string_view name;
  unsigned places = 0;
  // Names of the parameters, separated by blanks. "x?" may be left out; "x..." takes all that follow, of which a single
  // list counts as its elements; "x=" only by its name, and is ignored.
  std::string_view parameters;
  Lower lower = nullptr;
};

// All operations, ordered by subject.
std::span<const std::span<const Operation>> operations();
// Returns null if there is none.
const Operation* find_operation(std::string_view name, Place place);
// Returns what to use instead of an operation that is not allowed; empty if nothing is known.
std::string_view substitute_for(std::string_view name);

std::span<const Operation> element_operations();
std::span<const Operation> reduction_operations();
std::span<const Operation> shape_operations();
std::span<const Operation> creation_operations();
std::span<const Operation> python_operations();

// A binary function of two Python numbers, as Python computes it. Notes a problem.
Value python_binary(PlanBuilder& builder, std::string_view function, const Value& a, const Value& b);
// The tensor with rows and columns exchanged; one of less than two dimensions stays as it is.
int transposed(PlanBuilder& builder, int a);
// `tensor[index]`, where `tensor` is a step or a list.
Value get_item(PlanBuilder& builder, const Value& object, const Value& index);

}  // namespace tuft::loss_graph
