// What programs compute at the places where torch's choice is not obvious, and what they refuse for a datum.
#include "loss_graph/program.h"

#include <cmath>

#include <gtest/gtest.h>

#include "loss_graph/testing/graph_builder.h"

namespace tuft::loss_graph {
namespace {

using testing::GraphBuilder;
using testing::Json;
using testing::ref;
using ::testing::tuple;

Json args(std::initializer_list<Json> items) {
  Json out = Json::array();
  for (const Json& item : items) out.push_back(item);
  return out;
}

Tensor vector_of(const std::vector<float>& values) {
  return {{static_cast<int64_t>(values.size())}, std::span<const float>(values)};
}

// The gradient of sum(f(logprobs)).
std::vector<double> gradient(const std::string& target, const std::vector<float>& logprobs, Json more = Json::array(),
                             Json kwargs = Json::object()) {
  Json arguments = args({ref("logprobs")});
  for (const Json& argument : more) arguments.push_back(argument);
  GraphBuilder graph;
  graph.call("f", target, arguments, std::move(kwargs)).call("loss", ".sum", args({ref("f")})).output("loss");
  const auto program = graph.parse();
  EXPECT_TRUE(program.ok()) << program.error().message;
  const Tensor input = vector_of(logprobs);
  const auto outcome = (*program)->evaluate({&input, 1});
  EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return outcome.ok() ? outcome->gradient : std::vector<double>();
}

using Gradient = std::vector<double>;

TEST(LossGraph, ChoosesGradientsAtKinksAsTorch) {
  EXPECT_EQ(gradient("torch.abs", {-2, 0, 2}), Gradient({-1, 0, 1}));
  EXPECT_EQ(gradient("torch.relu", {-2, 0, 2}), Gradient({0, 0, 1}));
  EXPECT_EQ(gradient("torch.clamp", {-2, -1, 0, 1, 2}, args({-1.0, 1.0})), Gradient({0, 1, 1, 1, 0}));
  EXPECT_EQ(gradient("torch.minimum", {-1, 0, 1}, args({ref("logprobs")})), Gradient({1, 1, 1}));
  EXPECT_EQ(gradient("torch.maximum", {-1, 0, 1}, args({0.0})), Gradient({0, 0.5, 1}));
  EXPECT_EQ(gradient(".amax", {3, 1, 3}), Gradient({0.5, 0, 0.5}));
  EXPECT_EQ(gradient(".max", {3, 1, 3}), Gradient({0.5, 0, 0.5}));
  EXPECT_EQ(gradient("torch.pow", {0, 2}, args({0})), Gradient({0, 0}));
  EXPECT_EQ(gradient("torch.sign", {-1, 0, 5}), Gradient({0, 0, 0}));
}

// The values are those of torch, as decimal digits.
TEST(LossGraph, OfTwoTensorsOfBoolsTheSumIsABool) {
  const std::vector<float> first = {-1, -1, 1, 1};
  const std::vector<float> second = {1, -1, -1, 1};
  const std::vector<float> weights = {1000, 100, 10, 1};
  const std::vector<Tensor> inputs = {vector_of(first), vector_of(second), vector_of(weights)};
  const auto evaluate = [&](const std::string& target, Json arguments, Json kwargs) {
    GraphBuilder graph({{"logprobs", 1}, {"second", 1}, {"weights", 1}});
    graph.call("a", "operator.lt", args({ref("logprobs"), 0.0})).call("b", "operator.lt", args({ref("second"), 0.0}));
    graph.call("c", target, std::move(arguments), std::move(kwargs));
    graph.call("digits", "operator.mul", args({ref("weights"), ref("c")}));
    graph.call("nothing", "operator.mul", args({ref("logprobs"), 0.0}));
    graph.call("both", "operator.add", args({ref("digits"), ref("nothing")}));
    graph.call("loss", ".sum", args({ref("both")})).output("loss");
    const auto program = graph.parse();
    EXPECT_TRUE(program.ok()) << program.error().message;
    return (*program)->evaluate(inputs);
  };
  const auto digits = [&](const std::string& target, Json arguments, Json kwargs = Json::object()) {
    const auto outcome = evaluate(target, std::move(arguments), std::move(kwargs));
    EXPECT_TRUE(outcome.ok()) << target << ": " << outcome.error().message;
    return outcome.ok() ? outcome->loss : -1.0;
  };
  const Json both = args({ref("a"), ref("b")});
  EXPECT_EQ(digits("torch.add", both), 1110);
  EXPECT_EQ(digits("operator.add", both), 1110);
  EXPECT_EQ(digits("torch.add", both, {{"alpha", 2}}), 1110);
  EXPECT_EQ(digits("operator.mul", both), 100);
  EXPECT_EQ(digits("torch.maximum", both), 1110);
  EXPECT_EQ(digits("torch.minimum", both), 100);
  EXPECT_EQ(digits("operator.add", args({ref("a"), 1})), 2211) << "with a Python integer it is an integer";
  for (const char* refused : {"torch.floor_divide", "torch.remainder", "torch.fmod", "torch.pow"}) {
    const auto outcome = evaluate(refused, both, Json::object());
    ASSERT_FALSE(outcome.ok()) << refused;
    EXPECT_NE(outcome.error().message.find("two tensors of bools"), std::string::npos) << outcome.error().message;
  }
}

TEST(LossGraph, GivesTheGradientOfMaxAlongADimensionToTheFirst) {
  GraphBuilder graph;
  graph.call("m", ".max", args({ref("logprobs")}), {{"dim", 0}});
  graph.call("v", "operator.getitem", args({ref("m"), 0})).output("v");
  const auto program = graph.parse();
  ASSERT_TRUE(program.ok()) << program.error().message;
  const std::vector<float> logprobs = {1, 3, 3};
  const Tensor input = vector_of(logprobs);
  const auto outcome = (*program)->evaluate({&input, 1});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->gradient, Gradient({0, 1, 0}));
}

TEST(LossGraph, ListsOfListsOfEarlierNodesAreLimited) {
  const Json whole = {{"slice", {nullptr, nullptr, nullptr}}};
  GraphBuilder graph;
  std::string last = "logprobs";
  for (int i = 0; i < 40; ++i) {
    const std::string name = "pair" + std::to_string(i);
    graph.call(name, "operator.getitem", args({tuple(args({testing::ref(last), testing::ref(last)})), whole}));
    last = name;
  }
  graph.call("size", "builtins.len", args({testing::ref(last)})).call("sum", ".sum", args({ref("logprobs")}));
  graph.call("loss", "operator.mul", args({ref("sum"), ref("size")})).output("loss");
  const auto program = graph.parse();
  ASSERT_TRUE(program.ok()) << program.error().message;
  const InputType input{{3}};
  const auto cost = (*program)->cost({&input, 1});
  ASSERT_FALSE(cost.ok());
  EXPECT_NE(cost.error().message.find("16384 values"), std::string::npos) << cost.error().message;
}

TEST(LossGraph, NumbersThatNoIntegerHoldsAreTakenAsTheyAre) {
  const Gradient slope = gradient("torch.var", {1, 3}, Json::array(), {{"correction", -1e300}});
  ASSERT_EQ(slope.size(), 2U);
  EXPECT_NEAR(slope[1], 2e-300, 1e-310);
  GraphBuilder graph;
  graph.call("none", "torch.arange", args({9'000'000'000'000'000'000, -9'000'000'000'000'000'000}));
  graph.call("zero", ".sum", args({ref("none")})).call("sum", ".sum", args({ref("logprobs")}));
  graph.call("loss", "operator.add", args({ref("sum"), ref("zero")})).output("loss");
  const auto program = graph.parse();
  ASSERT_TRUE(program.ok()) << program.error().message;
  const std::vector<float> logprobs = {2};
  const Tensor input = vector_of(logprobs);
  EXPECT_EQ((*program)->evaluate({&input, 1})->loss, 2.0);
}

TEST(LossGraph, KeepsGradientsApartFromMetrics) {
  // The metric is finite and its derivative is not.
  GraphBuilder graph;
  graph.call("root", "torch.sqrt", args({ref("logprobs")})).call("m", ".sum", args({ref("root")}));
  graph.call("loss", ".sum", args({ref("logprobs")})).output("loss", {{"custom/root:mean", ref("m")}});
  const auto program = graph.parse();
  ASSERT_TRUE(program.ok());
  const std::vector<float> logprobs = {0, 4};
  const Tensor input = vector_of(logprobs);
  const auto outcome = (*program)->evaluate({&input, 1});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->gradient, Gradient({1, 1}));
  EXPECT_EQ(outcome->metrics, std::vector<double>({2}));
}

struct Refusal {
  const char* what;
  GraphBuilder graph;
  std::vector<float> logprobs;
  const char* message;
};

TEST(LossGraph, RefusesWhatADatumMakesImpossible) {
  const auto sum_of = [](const std::string& target, Json arguments) {
    GraphBuilder graph;
    graph.call("f", target, std::move(arguments)).call("loss", ".sum", args({ref("f")})).output("loss");
    return graph;
  };
  const GraphBuilder no_sum = GraphBuilder().call("f", "torch.exp", args({ref("logprobs")})).output("f");
  const GraphBuilder no_gradient = GraphBuilder()
                                       .call("d", ".detach", args({ref("logprobs")}))
                                       .call("loss", ".sum", args({ref("d")}))
                                       .output("loss");
  const std::vector<Refusal> refusals = {
      {"log(0)",
       sum_of("torch.log", args({ref("logprobs")})),
       {1, 0},
       "the loss of the custom loss is infinite or NaN"},
      {"sqrt at 0",
       sum_of("torch.sqrt", args({ref("logprobs")})),
       {1, 0},
       "the gradient of the custom loss is infinite"},
      {"not a scalar", no_sum, {1, 2}, "a loss of shape [2]"},
      {"no gradient", no_gradient, {1, 2}, "does not depend on logprobs"},
      {"index", sum_of("operator.getitem", args({ref("logprobs"), 5})), {1, 2}, "node 'f' (operator.getitem): index 5"},
      {"three dimensions", sum_of(".reshape", args({ref("logprobs"), 1, 1, -1})), {1}, "3 dimensions"},
      {"shapes", sum_of(".reshape", args({ref("logprobs"), 3})), {1}, "cannot be seen as one of shape [3]"},
      {"bools", sum_of("operator.invert", args({ref("logprobs")})), {1}, "a tensor of bools"},
  };
  for (const Refusal& refusal : refusals) {
    const auto program = refusal.graph.parse();
    ASSERT_TRUE(program.ok()) << refusal.what << ": " << program.error().message;
    const Tensor input = vector_of(refusal.logprobs);
    const auto outcome = (*program)->evaluate({&input, 1});
    ASSERT_FALSE(outcome.ok()) << refusal.what;
    EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.error().message.find(refusal.message), std::string::npos) << outcome.error().message;
  }
}

TEST(LossGraph, RefusesAnIndexTensorOutOfRange) {
  GraphBuilder graph({{"logprobs", 1}, {"ids", 1}});
  graph.call("g", "operator.getitem", args({ref("logprobs"), ref("ids")}));
  graph.call("loss", ".sum", args({ref("g")})).output("loss");
  const auto program = graph.parse();
  ASSERT_TRUE(program.ok());
  const std::vector<float> logprobs = {1, 2};
  for (const auto& [id, fits] : {std::pair{-2, true}, {1, true}, {2, false}, {-3, false}}) {
    const std::vector<int64_t> ids = {id};
    const std::vector<Tensor> inputs = {vector_of(logprobs), {{1}, std::span<const int64_t>(ids)}};
    EXPECT_EQ((*program)->evaluate(inputs).ok(), fits) << id;
  }
}

TEST(LossGraph, ChecksTheRankOfEachInput) {
  GraphBuilder graph({{"logprobs", 1}, {"tau", 0}});
  graph.call("m", "operator.mul", args({ref("logprobs"), ref("tau")}));
  graph.call("loss", ".sum", args({ref("m")})).output("loss");
  const auto program = graph.parse();
  ASSERT_TRUE(program.ok());
  const std::vector<float> logprobs = {1, 2};
  const std::vector<float> one = {0.5};
  // A number over the wire has the shape of a list of one.
  EXPECT_TRUE((*program)->evaluate(std::vector<Tensor>{vector_of(logprobs), vector_of(one)}).ok());
  const auto refused = (*program)->evaluate(std::vector<Tensor>{vector_of(logprobs), vector_of(logprobs)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "input 'tau': it has rank 1; the custom loss declares rank 0");
}

TEST(LossGraph, ElementsOfSlowFunctionsCountMoreThanOnce) {
  const InputType input{{10}};
  const auto cost_of = [&](const char* function, std::initializer_list<Json> arguments = {ref("logprobs")}) {
    GraphBuilder graph;
    graph.call("y", function, args(arguments)).call("loss", ".sum", args({ref("y")})).output("loss");
    return (*graph.parse())->cost({&input, 1})->elements;
  };
  EXPECT_EQ(cost_of("torch.neg"), 10 + 10 + 10);
  EXPECT_EQ(cost_of("torch.exp"), 10 + 2 * 10 + 10);
  EXPECT_EQ(cost_of("torch.sin"), 10 + 8 * 10 + 10);
  EXPECT_EQ(cost_of("torch.cumsum", {ref("logprobs"), 0}), 10 + 10 + 10);
  EXPECT_EQ(cost_of("torch.softmax", {ref("logprobs"), 0}), 10 + 4 * 10 + 10);
  EXPECT_EQ(cost_of("torch.log_softmax", {ref("logprobs"), 0}), 10 + 4 * 10 + 10);
  EXPECT_EQ(cost_of("torch.logsumexp", {ref("logprobs"), 0}), 10 + 4 * 10 + 1);
}

TEST(LossGraph, KnowsTheCostBeforehandAndRefusesTooMuch) {
  GraphBuilder graph;
  graph.call("rows", ".unsqueeze", args({ref("logprobs"), 0})).call("cols", ".unsqueeze", args({ref("logprobs"), 1}));
  graph.call("d", "operator.sub", args({ref("rows"), ref("cols")}))
      .call("loss", ".sum", args({ref("d")}))
      .output("loss");
  Limits limits;
  const auto program = graph.parse(limits);
  ASSERT_TRUE(program.ok());
  const InputType input{{10}};
  const auto cost = (*program)->cost({&input, 1});
  ASSERT_TRUE(cost.ok());
  EXPECT_EQ(cost->elements, 10 + 10 + 10 + 100 + 100);  // the sum reads what it adds up
  EXPECT_EQ(cost->planned, 5 + 7);                      // the arrays; the arguments of the operations

  limits.array_elements = 99;
  EXPECT_NE(
      (*graph.parse(limits))->cost({&input, 1}).error().message.find("node 'd' (operator.sub): it makes an array"),
      std::string::npos);
  limits = {};
  limits.evaluation_elements = 130;
  EXPECT_NE((*graph.parse(limits))->cost({&input, 1}).error().message.find("more than 130 elements"),
            std::string::npos);
}

}  // namespace
}  // namespace tuft::loss_graph
