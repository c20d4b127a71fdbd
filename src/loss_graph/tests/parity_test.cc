// Compares losses, gradients and metrics with those of torch's autograd, which tests/parity/make_loss_graph_data.py
// recorded, for graphs as the SDK encodes them.
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "loss_graph/program.h"

namespace tuft::loss_graph {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-6;

struct Datum {
  std::vector<Input> inputs;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int64_t>> integers;
  std::vector<Tensor> tensors;
  std::vector<InputType> types;

  explicit Datum(const Json& json) {
    const size_t count = json.size();
    floats.resize(count);
    integers.resize(count);
    for (size_t i = 0; i < count; ++i) {
      inputs.push_back({json[i].at("name"), json[i].at("rank")});
      Tensor tensor{json[i].at("shape"), {}};
      if (json[i].contains("data")) {
        for (const double value : json[i].at("data")) floats[i].push_back(static_cast<float>(value));
        tensor.values = std::span<const float>(floats[i]);
      } else {
        for (const int64_t value : json[i].at("ints")) integers[i].push_back(value);
        tensor.values = std::span<const int64_t>(integers[i]);
      }
      types.push_back({tensor.shape, json[i].contains("data")});
      tensors.push_back(std::move(tensor));
    }
  }
};

void expect_near(double ours, double torchs, const std::string& what) {
  EXPECT_NEAR(ours, torchs, kTolerance * std::max(1.0, std::fabs(torchs))) << what;
}

TEST(LossGraphParity, ComputesWhatTorchComputes) {
  std::ifstream in("tests/parity/data/loss_graph/cases.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(in, line)) << "no recorded cases";
  const size_t expected = Json::parse(line).at("cases");
  size_t cases = 0;
  for (; std::getline(in, line); ++cases) {
    const Json one = Json::parse(line);
    const std::string what = "case " + std::to_string(cases) + ": " + one.at("graph").dump();
    const Datum datum(one.at("inputs"));
    const auto program = Program::parse(one.at("graph").dump(), datum.inputs);
    ASSERT_TRUE(program.ok()) << program.error().message << "\n" << what;
    const auto cost = (*program)->cost(datum.types);
    ASSERT_TRUE(cost.ok()) << cost.error().message << "\n" << what;
    const auto outcome = (*program)->evaluate(datum.tensors);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message << "\n" << what;
    expect_near(outcome->loss, one.at("loss"), what);
    const std::vector<double> gradient = one.at("gradient");
    ASSERT_EQ(outcome->gradient.size(), gradient.size()) << what;
    for (size_t i = 0; i < gradient.size(); ++i) expect_near(outcome->gradient[i], gradient[i], "gradient of " + what);
    ASSERT_EQ((*program)->metrics().size(), one.at("metrics").size());
    for (size_t i = 0; i < outcome->metrics.size(); ++i) {
      expect_near(outcome->metrics[i], one.at("metrics").at((*program)->metrics()[i]), "metric of " + what);
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(cases, expected);
  EXPECT_GT(cases, 300U);
}

}  // namespace
}  // namespace tuft::loss_graph
