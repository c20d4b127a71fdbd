// Requests with a custom loss: what they compute, how they fail, and what they cost.
#include "engine/loss/custom_loss.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tests/fake_training_engine.h"
#include "engine/train/scheduler.h"
#include "engine/train/tests/tensors.h"
#include "loss_graph/testing/graph_builder.h"

namespace tuft::engine {
namespace {

using loss_graph::testing::GraphBuilder;
using loss_graph::testing::Json;
using loss_graph::testing::ref;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ProgramPtr = std::shared_ptr<const loss_graph::Program>;

ProgramPtr parsed(const GraphBuilder& graph) {
  auto program = graph.parse();
  EXPECT_TRUE(program.ok()) << program.error().message;
  return *program;
}

// -tau * sum(w * logprobs), with the sum of w as metrics.
ProgramPtr weighted() {
  GraphBuilder graph({{"logprobs", 1}, {"w", 1}, {"tau", 0}});
  graph.call("product", "operator.mul", Json::array({ref("logprobs"), ref("w")}));
  graph.call("total", ".sum", Json::array({ref("product")}));
  graph.call("scaled", "operator.mul", Json::array({ref("total"), ref("tau")}));
  graph.call("loss", "operator.neg", Json::array({ref("scaled")}));
  graph.call("weight", ".sum", Json::array({ref("w")}));
  return parsed(graph.output("loss", {{"custom/w:sum", ref("weight")}, {"custom/w:mean", ref("weight")}}));
}

// sum(log(w) * logprobs): not finite where w is 0.
ProgramPtr logarithmic() {
  GraphBuilder graph({{"logprobs", 1}, {"w", 1}});
  graph.call("log", "torch.log", Json::array({ref("w")}));
  graph.call("product", "operator.mul", Json::array({ref("log"), ref("logprobs")}));
  return parsed(graph.call("loss", ".sum", Json::array({ref("product")})).output("loss"));
}

Datum datum_of(std::vector<float> weights) {
  Datum datum;
  std::vector<int64_t> targets;
  for (size_t i = 0; i < weights.size(); ++i) {
    datum.tokens.push_back(static_cast<int32_t>(i) + 1);
    targets.push_back(static_cast<int64_t>(i) + 2);
  }
  const auto size = static_cast<int64_t>(weights.size());
  datum.loss_inputs["target_tokens"] = {{size}, std::move(targets)};
  datum.loss_inputs["w"] = float_tensor(std::move(weights));
  datum.loss_inputs["tau"] = float_tensor({0.5F});
  datum.loss_inputs["unread"] = float_tensor({1.0F, 2.0F, 3.0F});
  return datum;
}

class CustomLossTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"a", "b"}) ASSERT_TRUE(engine_.adapters().create(AdapterId(id), {}).ok());
    restart(100);
  }
  void restart(int batch_tokens, TaskRunner runner = {}) {
    scheduler_ = make_train_scheduler(engine_.model(), engine_.adapters(), engine_.training(),
                                      {.batch_tokens = batch_tokens, .tokens_max = 0}, nullptr, std::move(runner));
  }
  static TrainRequest request(const std::string& adapter, ProgramPtr program, std::vector<Datum> data) {
    TrainRequest request;
    request.adapter = AdapterId(adapter);
    request.loss_fn = "custom";
    request.custom_loss = std::move(program);
    request.data = std::move(data);
    return request;
  }
  void submit(TrainRequest request, const std::string& name) {
    ASSERT_TRUE(prepare_custom_loss(request).ok());
    const auto number = scheduler_->submit(std::move(request),
                                           [this, name](auto result) { answers_.emplace(name, std::move(result)); });
    ASSERT_TRUE(number.ok()) << number.error().message;
  }
  void run() {
    for (int i = 0; i < 1000 && !scheduler_->idle(); ++i) scheduler_->step();
    ASSERT_TRUE(scheduler_->idle());
  }
  double gradient(const std::string& id) const { return engine_.gradient_sums.at(id); }

  FakeTrainingEngine engine_;
  std::unique_ptr<TrainScheduler> scheduler_;
  std::map<std::string, Result<TrainOutput>> answers_;
};

TEST_F(CustomLossTest, LossGradientAndMetrics) {
  submit(request("a", weighted(), {datum_of({1, 2}), datum_of({3})}), "a");
  run();
  const auto& output = answers_.at("a");
  ASSERT_TRUE(output.ok()) << output.error().message;
  const double sum = 1.0 * FakeTrainingEngine::logprob(1, 0, 2) + 2.0 * FakeTrainingEngine::logprob(2, 1, 3) +
                     3.0 * FakeTrainingEngine::logprob(1, 0, 2);
  EXPECT_NEAR(output->metrics.at("loss:sum"), -0.5 * sum, 1e-6);
  EXPECT_EQ(output->metrics.at("custom/w:sum"), 6.0);
  EXPECT_EQ(output->metrics.at("custom/w:mean"), 3.0);
  EXPECT_EQ(output->weight_sum, 0.0);
  EXPECT_EQ(output->passes, 1);
  ASSERT_EQ(engine_.dloss.size(), 1U);
  EXPECT_THAT(engine_.dloss[0], ElementsAre(-0.5F, -1.0F, -1.5F));
  ASSERT_EQ(output->logprobs.size(), 2U);
  EXPECT_THAT(output->logprobs[0].shape, ElementsAre(2));
}

TEST_F(CustomLossTest, SparseInputsAreZeroElsewhere) {
  TrainRequest asked = request("a", weighted(), {datum_of({1, 2, 3})});
  asked.data[0].loss_inputs["w"] = {{3}, std::vector<float>{4.0F}, std::vector<int64_t>{1}};
  submit(std::move(asked), "a");
  run();
  EXPECT_THAT(engine_.dloss[0], ElementsAre(0.0F, -2.0F, 0.0F));
}

TEST_F(CustomLossTest, WhatADatumLacksIsRefusedByName) {
  const auto refusal = [](const auto& change) {
    TrainRequest asked = request("a", weighted(), {datum_of({1}), datum_of({1, 2})});
    change(asked.data[1].loss_inputs);
    const Status status = prepare_custom_loss(asked);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal([](auto& inputs) { inputs.erase("tau"); }),
            "data[1].loss_fn_inputs.tau: it is missing; the custom loss reads it");
  EXPECT_EQ(refusal([](auto& inputs) { inputs.erase("target_tokens"); }),
            "data[1].loss_fn_inputs.target_tokens: it is missing");
  EXPECT_EQ(refusal([](auto& inputs) {
              inputs["tau"] = float_tensor({1, 2});
            }),
            "data[1]: custom loss: input 'tau': it has rank 1; the custom loss declares rank 0");
  EXPECT_THAT(refusal([](auto& inputs) {
                inputs["w"] = float_tensor({1, 2, 3});
              }),
              HasSubstr("node 'product' (operator.mul)"));

  TrainRequest asked = request("a", weighted(), {datum_of({1})});
  asked.loss_config["beta"] = 1;
  ASSERT_TRUE(prepare_custom_loss(asked).ok());
  const auto refused = scheduler_->submit(std::move(asked), [](auto) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("custom has only the keys loss_id and temperature"));
}

TEST_F(CustomLossTest, EachShapeHasItsCostAndTooManyDatumsAreRefused) {
  TrainRequest asked = request("a", weighted(), {datum_of({1, 2}), datum_of({3, 4}), datum_of({1}), datum_of({5, 6})});
  ASSERT_TRUE(prepare_custom_loss(asked).ok());
  EXPECT_GT(asked.data[0].custom_elements, asked.data[2].custom_elements);
  EXPECT_EQ(asked.data[0].custom_elements, asked.data[1].custom_elements);
  EXPECT_EQ(asked.data[0].custom_elements, asked.data[3].custom_elements);

  TrainRequest large = request("a", weighted(), std::vector<Datum>(kCustomLossDatumsMax + 1, datum_of({1})));
  const Status refused = prepare_custom_loss(large);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("at most 1024 datums, and this one has 1025"));
}

TEST_F(CustomLossTest, ManyShapesOfALongGraphAreRefused) {
  GraphBuilder graph;
  Json items = Json::array();
  for (int i = 0; i < 4000; ++i) items.push_back(1);
  graph.call("list", "torch.tensor", Json::array({items})).call("sum", ".sum", Json::array({ref("logprobs")}));
  const ProgramPtr program = graph.output("sum").parse().value();
  std::vector<Datum> data;
  for (int i = 0; i < 400; ++i) data.push_back(i % 2 == 0 ? datum_of({1}) : datum_of({1, 2}));
  TrainRequest several = request("a", program, data);
  const Status refused = prepare_custom_loss(several);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "custom_loss_too_large");
  EXPECT_THAT(refused.error().message, HasSubstr("or group those of equal length"));

  std::stable_sort(data.begin(), data.end(),
                   [](const Datum& a, const Datum& b) { return a.tokens.size() < b.tokens.size(); });
  TrainRequest grouped = request("a", program, data);
  EXPECT_TRUE(prepare_custom_loss(grouped).ok());
  EXPECT_GT(grouped.data[0].custom_elements, 4000);  // planning counts
}

TEST_F(CustomLossTest, NotFiniteThenFailsAloneAndLeavesNoGradient) {
  submit(request("a", weighted(), {datum_of({2})}), "before");
  run();
  ASSERT_EQ(gradient("a"), -1.0);
  restart(2);  // a pass holds one datum of two tokens, so the failure comes in a later pass of its request
  submit(request("a", logarithmic(), {datum_of({2, 2}), datum_of({1, 0})}), "fails");
  submit(request("a", weighted(), {datum_of({4})}), "behind");
  submit(request("b", weighted(), {datum_of({6})}), "other");
  run();
  ASSERT_FALSE(answers_.at("fails").ok());
  EXPECT_EQ(answers_.at("fails").error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(answers_.at("fails").error().message, HasSubstr("data[1]: custom loss: the loss of the custom loss"));
  EXPECT_TRUE(answers_.at("behind").ok());
  EXPECT_TRUE(answers_.at("other").ok());
  EXPECT_EQ(gradient("a"), -1.0 - 2.0);
  EXPECT_EQ(gradient("b"), -3.0);
}

TEST_F(CustomLossTest, NotFiniteThenWhatSharesThePassKeepsItsGradient) {
  submit(request("a", logarithmic(), {datum_of({2, 2}), datum_of({1, 0})}), "fails");
  submit(request("a", weighted(), {datum_of({4})}), "behind");
  submit(request("a", logarithmic(), {datum_of({0, 1})}), "fails too");
  submit(request("b", weighted(), {datum_of({6})}), "other");
  run();
  EXPECT_FALSE(answers_.at("fails").ok());
  EXPECT_FALSE(answers_.at("fails too").ok());
  EXPECT_TRUE(answers_.at("behind").ok());
  EXPECT_TRUE(answers_.at("other").ok());
  EXPECT_EQ(gradient("a"), -2.0);
  EXPECT_EQ(gradient("b"), -3.0);
}

TEST_F(CustomLossTest, ItsCostCountsInThePass) {
  TrainRequest asked = request("a", weighted(), {datum_of({1, 2, 3, 4}), datum_of({1, 2, 3, 4})});
  ASSERT_TRUE(prepare_custom_loss(asked).ok());
  constexpr int kElements = 4 + 4 + 1 + 4 + 4 + 1 + 1 + 4;  // the two sums read four each
  constexpr int kPlanned = 8 + 7;                           // arrays, and arguments of operations
  EXPECT_EQ(asked.data[0].custom_elements, kElements + 20 * kPlanned);
  for (Datum& datum : asked.data) datum.custom_elements = 1 << 23;
  EXPECT_GT(tokens_worth(engine_.model(), 0, 1 << 23), 100);
  ASSERT_TRUE(scheduler_->submit(std::move(asked), [](auto) {}).ok());
  run();
  EXPECT_EQ(engine_.packs.size(), 2U);
}

TEST_F(CustomLossTest, ThreadsThenTheSame) {
  constexpr int kOnePass = 10000;  // with what the losses cost
  restart(kOnePass);
  submit(request("a", weighted(), {datum_of({1, 2}), datum_of({3}), datum_of({4, 5, 6})}), "alone");
  run();
  const auto expected = engine_.dloss.back();
  std::atomic<int> tasks_run{0};
  restart(kOnePass, [&](int tasks, const auto& task) {
    std::vector<std::thread> threads;
    for (int i = 0; i < tasks; ++i) {
      threads.emplace_back([&, i] {
        task(i, i);
        ++tasks_run;
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  submit(request("a", weighted(), {datum_of({1, 2}), datum_of({3}), datum_of({4, 5, 6})}), "threads");
  run();
  EXPECT_EQ(tasks_run, 3);
  EXPECT_EQ(engine_.dloss.back(), expected);
  EXPECT_EQ(answers_.at("threads")->metrics, answers_.at("alone")->metrics);
}

}  // namespace
}  // namespace tuft::engine
