#include "loss_graph/program.h"

#include <cmath>
#include <optional>
#include <utility>

#include "loss_graph/evaluation.h"
#include "loss_graph/graph.h"
#include "loss_graph/operation.h"
#include "loss_graph/plan.h"

namespace tuft::loss_graph {
namespace {

constexpr const char* kLogprobs = "logprobs";
constexpr size_t kInputNameMax = 64;

bool is_input_name(std::string_view name) {
  if (name.empty() || name.size() > kInputNameMax || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

Status check_inputs(const std::vector<Input>& inputs, const Limits& limits) {
  const auto invalid = [](std::string what) { return invalid_argument(std::move(what), "custom_loss_invalid"); };
  if (inputs.empty() || inputs.front().name != kLogprobs || inputs.front().rank == 0) {
    return invalid("inputs: the first must be logprobs, of rank 1 or 2");
  }
  if (inputs.size() > limits.inputs) {
    return invalid("inputs: a custom loss has at most " + std::to_string(limits.inputs) + ", with logprobs");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_input_name(inputs[i].name)) {
      return invalid("inputs[" + std::to_string(i) +
                     "].name: must be a lower-case name of letters, digits and underscores");
    }
    if (inputs[i].rank < 0 || inputs[i].rank > 2) {
      return invalid("inputs[" + std::to_string(i) + "].rank: must be 0, 1 or 2");
    }
    for (size_t k = 0; k < i; ++k) {
      if (inputs[k].name == inputs[i].name) return invalid("inputs: '" + inputs[i].name + "' is there twice");
    }
  }
  return {};
}

size_t value_count(const Tensor& tensor) {
  return std::visit([](const auto& values) { return values.size(); }, tensor.values);
}

int64_t product_of(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) return -1;
  }
  return product;
}

Result<Shape> shape_of(const Input& input, const InputType& tensor) {
  const auto invalid = [&](const std::string& what) {
    return invalid_argument("input '" + input.name + "': " + what, "custom_loss_input");
  };
  Shape shape{input.rank, {1, 1}};
  // Over the wire a number looks like a list of one.
  const bool is_scalar = input.rank == 0 && tensor.shape.size() <= 1 && product_of(tensor.shape) == 1;
  if (!is_scalar && tensor.shape.size() != static_cast<size_t>(input.rank)) {
    return invalid("it has rank " + std::to_string(tensor.shape.size()) + "; the custom loss declares rank " +
                   std::to_string(input.rank));
  }
  for (size_t dim = 0; dim < static_cast<size_t>(input.rank); ++dim) {
    if (tensor.shape[dim] < 0 || tensor.shape[dim] > static_cast<int64_t>(1) << 31)
      return invalid("its shape is absurd");
    shape.extents[dim] = tensor.shape[dim];
  }
  return shape;
}

// Replaces references to nodes by their values. A list that holds a list of an earlier node twice is twice as long, and
// so on with each node, so what is copied is limited.
class Resolver {
 public:
  explicit Resolver(size_t values_max) : left_(values_max) {}

  // Returns nothing if the limit is exceeded.
  std::optional<Value> resolved(const Value& value) {
    Value out;
    if (!copy(value, out)) return std::nullopt;
    return out;
  }
  // Returns how many values it may still copy.
  size_t left() const { return left_; }
  // The value of the next node.
  void add(Value value) { nodes_.push_back(std::move(value)); }
  const Value& node(const Value& reference) const { return nodes_[static_cast<size_t>(reference.integer)]; }

 private:
  bool copy(const Value& from, Value& to) {
    if (from.is(Value::Kind::kMissing)) return true;
    const Value& source = from.is(Value::Kind::kNode) ? node(from) : from;
    if (left_ == 0) return false;
    --left_;
    to = {.kind = source.kind,
          .integer = source.integer,
          .number = source.number,
          .text = source.text,
          .dtype = source.dtype,
          .keys = source.keys};
    for (const Value& item : source.items) {
      if (!copy(item, to.items.emplace_back())) return false;
    }
    return true;
  }

  size_t left_;
  std::vector<Value> nodes_;
};

class Planner {
 public:
  Planner(const std::vector<Input>& inputs, const std::vector<Node>& nodes, const Limits& limits)
      : inputs_(inputs), nodes_(nodes), limits_(limits), builder_(limits), resolver_(limits.resolved_values) {}

  Result<Plan> plan(std::span<const InputType> types, const Value& loss, std::span<const Value> metrics) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      builder_.set_node(static_cast<int>(i));
      TUFT_ASSIGN(Value value, i < inputs_.size() ? input(i, types[i]) : call(nodes_[i]));
      if (!builder_.ok()) return node_error(nodes_[i], builder_.status().error().message);
      resolver_.add(std::move(value));
    }
    TUFT_TRY(finish(loss, metrics));
    builder_.plan().values = static_cast<int64_t>(limits_.resolved_values - resolver_.left());
    return builder_.take();
  }

 private:
  Result<Value> input(size_t i, const InputType& type) {
    TUFT_ASSIGN(const Shape shape, shape_of(inputs_[i], type));
    const Dtype dtype = type.is_float ? Dtype::kFloat : Dtype::kInt;
    return Value::array(builder_.input(static_cast<int>(i), shape, dtype, i == 0));
  }

  Result<Value> call(const Node& node) {
    std::vector<Value> arguments;
    arguments.reserve(node.arguments.size());
    for (const Value& argument : node.arguments) {
      auto value = resolver_.resolved(argument);
      if (!value) {
        return node_error(node, "up to here, the arguments hold more than " + std::to_string(limits_.resolved_values) +
                                    " values; use shorter lists");
      }
      arguments.push_back(std::move(*value));
    }
    return node.operation->lower(builder_, Call(*node.operation, std::move(arguments), builder_));
  }

  Status finish(const Value& loss, std::span<const Value> metrics) {
    const auto invalid = [](std::string what) { return invalid_argument(std::move(what), "custom_loss_invalid"); };
    const Value& result = resolver_.node(loss);
    if (!result.is(Value::Kind::kArray)) return invalid("the custom loss returns no tensor as its loss");
    const int step = static_cast<int>(result.integer);
    if (builder_.shape(step).rank != 0) {
      return invalid("the custom loss returns a loss of shape " + builder_.shape(step).text() +
                     "; it must be a single number, such as .sum() makes");
    }
    if (!builder_.step(step).differentiable)
      return invalid("the loss does not depend on logprobs, so it has no gradient");
    std::vector<int> steps;
    for (const Value& metric : metrics) {
      const Value& value = metric.is(Value::Kind::kNode) ? resolver_.node(metric) : metric;
      int made = -1;
      if (value.is(Value::Kind::kArray)) made = static_cast<int>(value.integer);
      if (value.is_number()) made = builder_.fill(Shape::scalar(), value.as_double(), Dtype::kFloat);
      if (made < 0 || builder_.shape(made).count() != 1)
        return invalid("a metric of the custom loss is not a single number");
      steps.push_back(made);
    }
    TUFT_TRY(builder_.status());
    builder_.plan().loss = step;
    builder_.plan().metrics = std::move(steps);
    return {};
  }

  const std::vector<Input>& inputs_;
  const std::vector<Node>& nodes_;
  const Limits& limits_;
  PlanBuilder builder_;
  Resolver resolver_;
};

bool all_finite(std::span<const double> values) {
  for (const double value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

Error not_finite(const std::string& what) {
  return invalid_argument(
      what +
          " of the custom loss is infinite or NaN; a division by 0, log(0), or exp of a large number "
          "makes it so, and torch.where does not hide it from the gradient",
      "custom_loss_not_finite");
}

}  // namespace

Program::Program() = default;
Program::~Program() = default;

Result<std::shared_ptr<const Program>> Program::parse(std::string_view graph, std::vector<Input> inputs,
                                                      const Limits& limits) {
  TUFT_TRY(check_inputs(inputs, limits));
  TUFT_ASSIGN(Graph read, read_graph(graph, inputs, limits));
  std::shared_ptr<Program> program(new Program());
  program->limits_ = limits;
  program->inputs_ = std::move(inputs);
  program->metrics_ = std::move(read.metrics);
  program->nodes_ = std::move(read.nodes);
  program->results_.push_back(std::move(read.loss));
  for (Value& metric : read.metric_values) program->results_.push_back(std::move(metric));
  return std::shared_ptr<const Program>(std::move(program));
}

Result<Plan> Program::plan(std::span<const InputType> inputs) const {
  if (inputs.size() != inputs_.size()) return internal_error("a custom loss got a wrong number of inputs");
  return Planner(inputs_, nodes_, limits_).plan(inputs, results_.front(), std::span(results_).subspan(1));
}

Result<Cost> Program::cost(std::span<const InputType> inputs) const {
  TUFT_ASSIGN(const Plan plan, this->plan(inputs));
  return Cost{plan.work, static_cast<int64_t>(plan.steps.size()) + plan.values};
}

Result<Outcome> Program::evaluate(std::span<const Tensor> inputs) const {
  std::vector<InputType> types;
  std::vector<InputValues> values;
  for (const Tensor& input : inputs) {
    if (static_cast<int64_t>(value_count(input)) != product_of(input.shape)) {
      return internal_error("an input of a custom loss does not fill its shape");
    }
    types.push_back({input.shape, std::holds_alternative<std::span<const float>>(input.values)});
    values.push_back(input.values);
  }
  TUFT_ASSIGN(const Plan plan, this->plan(types));
  Evaluation evaluation(plan, values);
  if (const std::string problem = evaluation.forward(); !problem.empty()) {
    const Step& step = plan.steps[static_cast<size_t>(evaluation.failed_step())];
    return node_error(nodes_[static_cast<size_t>(step.node)], problem);
  }
  Outcome out;
  out.loss = evaluation.value(plan.loss);
  for (const int metric : plan.metrics) out.metrics.push_back(evaluation.value(metric));
  if (!std::isfinite(out.loss)) return not_finite("the loss");
  for (size_t i = 0; i < out.metrics.size(); ++i) {
    if (!std::isfinite(out.metrics[i])) return not_finite("metric " + metrics_[i]);
  }
  const std::span<const double> gradient = evaluation.gradient(0);
  if (!all_finite(gradient)) return not_finite("the gradient");
  out.gradient.assign(gradient.begin(), gradient.end());
  return out;
}

}  // namespace tuft::loss_graph
