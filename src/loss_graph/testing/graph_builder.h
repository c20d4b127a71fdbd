// Writes graphs as the SDK does, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "loss_graph/program.h"

namespace tuft::loss_graph::testing {

using Json = nlohmann::json;

inline Json ref(const std::string& name) {
  return {{"ref", name}};
}
inline Json tuple(Json items) {
  return {{"tuple", std::move(items)}};
}

class GraphBuilder {
 public:
  explicit GraphBuilder(std::vector<Input> inputs = {{"logprobs", 1}}) : inputs_(std::move(inputs)) {
    for (const Input& input : inputs_) node("placeholder", input.name, input.name, Json::array());
  }

  // Adds a function ("torch.exp", "operator.add") or, with a leading dot, a method (".sum").
  GraphBuilder& call(const std::string& name, const std::string& target, Json args, Json kwargs = Json::object()) {
    const bool method = target.starts_with(".");
    return node(method ? "call_method" : "call_function", name, method ? target.substr(1) : target, std::move(args),
                std::move(kwargs));
  }
  GraphBuilder& node(const std::string& op, const std::string& name, const std::string& target, Json args,
                     Json kwargs = Json::object()) {
    nodes_.push_back(
        {{"op", op}, {"name", name}, {"target", target}, {"args", std::move(args)}, {"kwargs", std::move(kwargs)}});
    return *this;
  }
  GraphBuilder& output(const std::string& loss, Json metrics = Json::object()) {
    return node("output", "output", "output", Json::array({tuple({ref(loss), {{"dict", std::move(metrics)}}})}));
  }

  std::string text() const { return Json({{"format", 1}, {"nodes", nodes_}}).dump(); }
  const std::vector<Input>& inputs() const { return inputs_; }
  Result<std::shared_ptr<const Program>> parse(const Limits& limits = {}) const {
    return Program::parse(text(), inputs_, limits);
  }

 private:
  std::vector<Input> inputs_;
  Json nodes_ = Json::array();
};

}  // namespace tuft::loss_graph::testing
