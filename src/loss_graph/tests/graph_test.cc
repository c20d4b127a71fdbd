// What is refused when a graph is uploaded.
#include <gtest/gtest.h>

#include "loss_graph/program.h"
#include "loss_graph/testing/graph_builder.h"

namespace tuft::loss_graph {
namespace {

using testing::GraphBuilder;
using testing::Json;
using testing::ref;

// exp, sum, output, with one more node in between.
std::string with_node(const Json& node) {
  GraphBuilder graph;
  Json json = Json::parse(graph.call("loss", ".sum", Json::array({ref("logprobs")})).output("loss").text());
  Json& nodes = json["nodes"];
  nodes.insert(nodes.begin() + 1, node);
  return json.dump();
}

Json call(const std::string& target, Json args, Json kwargs = Json::object()) {
  return {{"op", "call_function"},
          {"name", "n"},
          {"target", target},
          {"args", std::move(args)},
          {"kwargs", std::move(kwargs)}};
}

Error refusal(const std::string& text, std::vector<Input> inputs = {{"logprobs", 1}}, const Limits& limits = {}) {
  const auto program = Program::parse(text, std::move(inputs), limits);
  EXPECT_FALSE(program.ok()) << text;
  return program.ok() ? Error() : program.error();
}

TEST(LossGraphUpload, NamesAnOperationThatIsNotAllowedAndWhatToUse) {
  const Error error = refusal(with_node(call("torch.prod", Json::array({ref("logprobs")}))));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.reason, "custom_loss_operation");
  EXPECT_EQ(error.message,
            "node 'n' (torch.prod): this operation is not allowed in a custom loss: use exp of the sum of log");
  const auto in_place = refusal(with_node(
      {{"op", "call_method"}, {"name", "n"}, {"target", "add_"}, {"args", Json::array({ref("logprobs"), 1})}}));
  EXPECT_NE(in_place.message.find("without the underscore"), std::string::npos);
  for (const char* target : {"os.system", "builtins.eval", "eval", "torch.load", "math.comb", "operator.setitem",
                             "torch._C._nn.gelu", "torch.ops.aten.add.Tensor", "torch.nn.functional.dropout"}) {
    EXPECT_EQ(refusal(with_node(call(target, Json::array({ref("logprobs")})))).reason, "custom_loss_operation")
        << target;
  }
}

TEST(LossGraphUpload, ChecksArguments) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {call("torch.exp", Json::array({ref("later")})), "refers to a node that does not come before it"},
      {call("torch.exp", Json::array({ref("n")})), "refers to a node that does not come before it"},
      {call("torch.exp", Json::array()), "it lacks its argument 'input'"},
      {call("torch.exp", Json::array({ref("logprobs"), 1})), "it has 2 arguments; its parameters are input"},
      {call("torch.exp", Json::array({ref("logprobs")}), {{"out", 1}}), "it has no parameter 'out'"},
      {call("torch.exp", Json::array({ref("logprobs")}), {{"input", 1}}), "is given twice"},
      {call("torch.exp", Json::array({{{"dtype", "float16"}}})), "its dtype is not allowed"},
      {call("torch.exp", Json::array({{{"device", "cuda"}}})), "the only device is cpu"},
      {call("torch.exp", Json::array({{{"float", "1e999"}}})), "a float must be inf, -inf or nan"},
      {call("torch.exp", Json::array({{{"slice", Json::array({1})}}})), "a slice has three values"},
      {call("torch.exp", Json::array({{{"ref", "logprobs"}, {"x", 1}}})), "an object with one key"},
      {call("torch.exp", Json::array({{{"code", "x"}}})), "a kind that this server does not know"},
      {call("torch.exp", Json::array({18446744073709551615U})), "an integer is too large"},
      {call("torch.relu", Json::array({ref("logprobs")}), {{"inplace", true}}), "'inplace' must not be True"},
  };
  for (const auto& [node, message] : cases) {
    const Error error = refusal(with_node(node));
    EXPECT_NE(error.message.find(message), std::string::npos) << error.message << "\n" << node.dump();
    EXPECT_NE(error.message.find("node 'n' ("), std::string::npos) << error.message;
  }
}

TEST(LossGraphUpload, ChecksTheFormOfTheGraph) {
  const std::string good = GraphBuilder().call("loss", ".sum", Json::array({ref("logprobs")})).output("loss").text();
  ASSERT_TRUE(Program::parse(good, {{"logprobs", 1}}).ok());
  const auto changed = [&](const auto& change) {
    Json json = Json::parse(good);
    change(json);
    return refusal(json.dump()).message;
  };
  EXPECT_NE(refusal("[]").message.find("not a JSON object"), std::string::npos);
  EXPECT_NE(refusal("{").message.find("not a JSON object"), std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["of_a_newer_sdk"] = 1; }).find("it has the member 'of_a_newer_sdk'"),
            std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"][0]["meta"] = 1; }).find("node 0 has the member 'meta'"),
            std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["format"] = 2; }).find("format is not 1"), std::string::npos);
  EXPECT_NE(changed([](Json& json) { json.erase("nodes"); }).find("'nodes' must be a list"), std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"].erase(2); }).find("no output node"), std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"].erase(0); }).find("fewer placeholders"), std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"].push_back(json["nodes"][1]); }).find("follows the output"),
            std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"][1]["name"] = "logprobs"; }).find("same name"), std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"][1]["name"] = "a\nb"; }).find("'name' must be"), std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"][0]["target"] = "other"; }).find("must be the inputs"),
            std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"][1]["op"] = "call_module"; }).find("'call_module' are not allowed"),
            std::string::npos);
  EXPECT_NE(changed([](Json& json) { json["nodes"][2]["args"] = Json::array({ref("loss")}); }).find("returns its loss"),
            std::string::npos);
  const auto metric = [&](const char* name) {
    return refusal(GraphBuilder()
                       .call("loss", ".sum", Json::array({ref("logprobs")}))
                       .output("loss", {{name, ref("loss")}})
                       .text())
        .message;
  };
  for (const char* name : {"loss:sum", "custom/A:sum", "custom/a:max", "custom/:sum", "custom/a:sum:sum"}) {
    EXPECT_NE(metric(name).find("must be named custom/"), std::string::npos) << name;
  }
}

TEST(LossGraphUpload, ChecksInputs) {
  const std::string good = GraphBuilder().call("loss", ".sum", Json::array({ref("logprobs")})).output("loss").text();
  EXPECT_NE(refusal(good, {}).message.find("the first must be logprobs"), std::string::npos);
  EXPECT_NE(refusal(good, {{"logprobs", 0}}).message.find("the first must be logprobs"), std::string::npos);
  EXPECT_NE(refusal(good, {{"logprobs", 1}, {"X", 1}}).message.find("inputs[1].name"), std::string::npos);
  EXPECT_NE(refusal(good, {{"logprobs", 1}, {"x", 3}}).message.find("inputs[1].rank"), std::string::npos);
  EXPECT_NE(refusal(good, {{"logprobs", 1}, {"logprobs", 1}}).message.find("there twice"), std::string::npos);
  EXPECT_NE(refusal(good, std::vector<Input>(17, {"logprobs", 1})).message.find("at most 16"), std::string::npos);
}

TEST(LossGraphUpload, HasLimits) {
  const std::string good = GraphBuilder().call("loss", ".sum", Json::array({ref("logprobs")})).output("loss").text();
  Limits limits;
  limits.text_bytes = good.size() - 1;
  EXPECT_EQ(refusal(good, {{"logprobs", 1}}, limits).code, ErrorCode::kPayloadTooLarge);
  limits = {};
  limits.nodes = 2;
  EXPECT_NE(refusal(good, {{"logprobs", 1}}, limits).message.find("at most 2"), std::string::npos);
  limits = {};
  limits.values = 3;
  EXPECT_NE(refusal(good, {{"logprobs", 1}}, limits).message.find("at most 3 values"), std::string::npos);
  Json deep = 1;
  for (int i = 0; i < 12; ++i) deep = Json::array({deep});
  EXPECT_EQ(refusal(with_node(call("torch.exp", Json::array({deep})))).code, ErrorCode::kPayloadTooLarge);
  EXPECT_EQ(refusal(std::string(60'000, '[')).code, ErrorCode::kPayloadTooLarge);
}

}  // namespace
}  // namespace tuft::loss_graph
