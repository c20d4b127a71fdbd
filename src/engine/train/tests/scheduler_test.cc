// Tests the scheduler with several tenants: which requests share a pass, their order, and the effects of a failure.
#include "engine/train/scheduler.h"

#include <functional>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model_cost.h"
#include "engine/tests/fake_training_engine.h"

namespace tuft::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

Datum datum_of(int length) {
  Datum datum;
  std::vector<int64_t> targets;
  for (int i = 0; i < length; ++i) {
    datum.tokens.push_back(i % 40 + 1);
    targets.push_back(i % 40 + 2);
  }
  const auto size = static_cast<int64_t>(length);
  datum.loss_inputs["target_tokens"] = {{size}, std::move(targets)};
  return datum;
}

struct Answer {
  std::string name;
  Result<TrainOutput> result;
  size_t after_passes = 0;
};

class Recorder final : public PassObserver {
 public:
  void pass_begins(const TrainPass& pass) override { passes.push_back(pass); }
  void pass_ended(const TrainPass&, const Status& status) override { ended.push_back(status); }
  std::vector<TrainPass> passes;
  std::vector<Status> ended;
};

class TrainSchedulerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"a", "b", "c"}) add(id);
    restart(10);
  }
  void add(const std::string& id) { ASSERT_TRUE(engine_.adapters().create(AdapterId(id), {}).ok()); }
  void restart(int batch_tokens) {
    scheduler_ = make_train_scheduler(engine_.model(), engine_.adapters(), engine_.training(),
                                      {.batch_tokens = batch_tokens, .tokens_max = 0}, &recorder_);
  }

  void submit(const std::string& adapter, const std::vector<int>& lengths, const std::string& name = {},
              bool backward = true, const std::string& tenant = {}) {
    TrainRequest request{AdapterId(adapter), {}, "cross_entropy", {}, backward, 0, tenant};
    for (const int length : lengths) request.data.push_back(datum_of(length));
    const auto number =
        scheduler_->submit(std::move(request), [this, name = name.empty() ? adapter : name](auto result) {
          answers_.push_back({name, std::move(result), engine_.packs.size()});
        });
    ASSERT_TRUE(number.ok()) << number.error().message;
  }
  void run() {
    for (int i = 0; i < 1000 && !scheduler_->idle(); ++i) scheduler_->step();
    ASSERT_TRUE(scheduler_->idle());
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Answer& answer : answers_) out.push_back(answer.name);
    return out;
  }
  const Answer& answer(const std::string& name) const {
    for (const Answer& answer : answers_) {
      if (answer.name == name) return answer;
    }
    ADD_FAILURE() << "no answer to " << name;
    return answers_.front();
  }
  // For example "a3 b2": adapter and length of each segment.
  std::string pack(size_t index) const {
    std::string out;
    for (const Segment& segment : engine_.packs[index].segments) {
      if (!out.empty()) out += ' ';
      out += segment.adapter.str() + std::to_string(segment.end - segment.begin);
    }
    return out;
  }
  double gradient(const std::string& id) const { return engine_.gradient_sums.at(id); }
  // Returns the tokens of each adapter in the passes since `first`.
  std::map<std::string, int> tokens_since(size_t first) const {
    std::map<std::string, int> tokens;
    for (size_t i = first; i < engine_.packs.size(); ++i) {
      for (const Segment& segment : engine_.packs[i].segments)
        tokens[segment.adapter.str()] += segment.end - segment.begin;
    }
    return tokens;
  }
  // In the tiny model, attention to 32 positions costs as much as a token.
  static int cost_of(int length) { return length + length * (length + 1) / 2 / 32; }
  // Returns what the datums of each adapter cost in the passes since `first`.
  std::map<std::string, int> costs_since(size_t first) const {
    std::map<std::string, int> costs;
    for (size_t i = first; i < engine_.packs.size(); ++i) {
      for (const Segment& segment : engine_.packs[i].segments)
        costs[segment.adapter.str()] += cost_of(segment.end - segment.begin);
    }
    return costs;
  }
  // Runs passes beside a tenant "short" with one adapter and datums of one token. Expects that these cost as much as
  // those of all the others together, which have 100 tokens, up to one of these.
  void expect_that_short_has_half() {
    ASSERT_EQ(ModelCost(engine_.model()).positions_per_token(), 32);
    constexpr int kPasses = 180;
    add("short");
    submit("short", std::vector<int>(size_t{kPasses} * 10, 1));
    for (int i = 0; i < kPasses; ++i) scheduler_->step();
    int others = 0;
    for (const auto& [adapter, cost] : costs_since(0)) others += adapter == "short" ? 0 : cost;
    EXPECT_NEAR(costs_since(0)["short"], others, cost_of(100));
    EXPECT_GT(others, 4 * cost_of(100));
  }

  FakeTrainingEngine engine_;
  Recorder recorder_;
  std::unique_ptr<TrainScheduler> scheduler_;
  std::vector<Answer> answers_;
};

TEST_F(TrainSchedulerTest, DatumsOfSeveralAdaptersThenOnePassForAll) {
  submit("b", {2});
  submit("a", {3, 1});
  submit("c", {4});
  run();
  ASSERT_EQ(engine_.packs.size(), 1U);
  EXPECT_EQ(pack(0), "a3 a1 b2 c4");
  EXPECT_THAT(names(), UnorderedElementsAre("a", "b", "c"));
  EXPECT_EQ(gradient("a"), -4.0);
  EXPECT_EQ(gradient("b"), -2.0);
  EXPECT_EQ(gradient("c"), -4.0);
  for (const Answer& answer : answers_) {
    ASSERT_TRUE(answer.result.ok());
    const auto& logprobs = std::get<std::vector<float>>(answer.result->logprobs[0].values);
    EXPECT_EQ(logprobs[0], FakeTrainingEngine::logprob(1, 0, 2)) << answer.name;
    EXPECT_EQ(answer.result->passes, 1);
  }
  ASSERT_EQ(recorder_.passes.size(), 1U);
  EXPECT_EQ(recorder_.passes[0].tokens, 10);
  EXPECT_EQ(recorder_.passes[0].adapters, 3);
  EXPECT_EQ(recorder_.passes[0].shares.size(), 3U);
}

TEST_F(TrainSchedulerTest, AdaptersOfOneRankAreAdjacent) {
  for (const auto& [id, rank] : {std::pair("a", 8), std::pair("b", 4), std::pair("c", 8)}) {
    TrainRequest request{AdapterId(id), {datum_of(2)}, "cross_entropy", {}, true, rank};
    ASSERT_TRUE(scheduler_->submit(std::move(request), [](const auto&) {}).ok());
  }
  run();
  EXPECT_EQ(pack(0), "b2 a2 c2");
}

TEST_F(TrainSchedulerTest, LargeRequestThenASmallOneIsAnsweredEarly) {
  submit("a", std::vector<int>(100, 2));
  scheduler_->step();
  submit("b", {2, 2});
  run();
  EXPECT_THAT(names(), ElementsAre("b", "a"));
  EXPECT_EQ(answer("b").after_passes, 2U) << "in the first pass after it came";
  EXPECT_EQ(engine_.packs.size(), 21U) << "no pass was left emptier than need be";
  EXPECT_EQ(gradient("a"), -200.0);
}

TEST_F(TrainSchedulerTest, ManyRequestsThenTokensAreSharedEqually) {
  restart(16);
  submit("a", std::vector<int>(400, 1));
  submit("b", std::vector<int>(100, 4));
  submit("c", std::vector<int>(200, 2));
  for (int i = 0; i < 40; ++i) scheduler_->step();
  auto tokens = tokens_since(0);
  EXPECT_EQ(tokens["a"] + tokens["b"] + tokens["c"], 40 * 16);
  for (const char* id : {"a", "b", "c"}) EXPECT_NEAR(tokens[id], 40 * 16 / 3.0, 16) << id;
}

TEST_F(TrainSchedulerTest, OneTenantWithManyAdaptersThenAnotherHasHalfOfAll) {
  restart(16);
  for (int i = 0; i < 12; ++i) {
    add("many" + std::to_string(i));
    submit("many" + std::to_string(i), std::vector<int>(200, 2), {}, true, "many");
  }
  for (int i = 0; i < 4; ++i) scheduler_->step();
  submit("a", std::vector<int>(200, 2), {}, true, "one");
  const size_t before = engine_.packs.size();
  for (int i = 0; i < 30; ++i) scheduler_->step();
  auto tokens = tokens_since(before);
  EXPECT_NEAR(tokens["a"], 30 * 16 / 2.0, 2 * 16);
  for (int i = 0; i < 12; ++i) {
    const std::string name = "many" + std::to_string(i);
    EXPECT_NEAR(tokens[name], 30 * 16 / 2.0 / 12, 8) << name;
  }
}

TEST_F(TrainSchedulerTest, BigDatumAmongSmallOnesThenWaitsForFewPasses) {
  submit("a", std::vector<int>(200, 1));
  submit("b", std::vector<int>(200, 1));
  submit("c", {9, 30});
  run();
  size_t nine = 0;
  size_t thirty = 0;
  for (size_t i = 0; i < engine_.packs.size(); ++i) {
    if (pack(i).find("c9") != std::string::npos) nine = i;
    if (pack(i) == "c30") thirty = i;
  }
  EXPECT_LE(nine, static_cast<size_t>(kPassedOverMax) + 1);
  EXPECT_GT(thirty, nine) << "longer than the budget: in a pass of its own";
  EXPECT_LE(thirty, nine + static_cast<size_t>(kPassedOverMax) + 1);
}

TEST_F(TrainSchedulerTest, DatumsLongerThanManyPassesThenAnotherTenantHasHalfOfAll) {
  submit("a", std::vector<int>(20, 100));
  expect_that_short_has_half();
}

TEST_F(TrainSchedulerTest, LongDatumsOneAfterTheOtherThenTheTenantOwesWhatWasAnswered) {
  std::function<void()> next = [&] {
    TrainRequest request{AdapterId("a"), {datum_of(100)}, "cross_entropy", {}, true};
    ASSERT_TRUE(scheduler_->submit(std::move(request), [&](const auto&) { next(); }).ok());
  };
  next();
  expect_that_short_has_half();
}

TEST_F(TrainSchedulerTest, LongDatumsOfManyAdaptersThenTheTenantOwesForAll) {
  for (const char* id : {"a", "b", "c"}) submit(id, std::vector<int>(20, 100), {}, true, "many");
  expect_that_short_has_half();
}

TEST_F(TrainSchedulerTest, LongDatumsOfAnotherKindThenAnotherTenantHasHalfOfAll) {
  submit("a", std::vector<int>(20, 100), {}, /*backward=*/false);
  expect_that_short_has_half();
}

TEST_F(TrainSchedulerTest, LongDatumsOfTwoTenantsThenAThirdHasNoMoreThanThey) {
  for (const char* id : {"a", "b"}) submit(id, std::vector<int>(40, 100));
  for (int i = 0; i < 30; ++i) scheduler_->step();
  submit("c", std::vector<int>(300, 1));
  for (int i = 0; i < 30; ++i) scheduler_->step();
  auto costs = costs_since(30);
  for (const char* id : {"a", "b"}) EXPECT_NEAR(costs[id], costs["c"], 2 * cost_of(100)) << id;
}

TEST_F(TrainSchedulerTest, DatumsFillAPassThenTheirAttentionTakesNoRoom) {
  restart(64);
  submit("a", {32, 32});
  submit("b", {16, 16, 16, 16});
  run();
  EXPECT_EQ(engine_.packs.size(), 2U);
}

TEST_F(TrainSchedulerTest, LongDatumsWhileNobodyElseWaitsThenNothingIsOwed) {
  submit("a", std::vector<int>(20, 100));
  for (int i = 0; i < 10; ++i) scheduler_->step();
  submit("b", std::vector<int>(100, 1));
  for (int i = 0; i <= kPassedOverMax; ++i) scheduler_->step();
  EXPECT_EQ(tokens_since(10)["a"], 100);
}

TEST_F(TrainSchedulerTest, ManyAdaptersThenAllHaveBeenServedBeforeOneIsServedTwice) {
  std::set<std::string> all;
  for (int i = 0; i < 30; ++i) {
    const std::string id = "t" + std::to_string(100 + i);
    add(id);
    all.insert(id);
    submit(id, {3, 3});
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < 10; ++i) {
    scheduler_->step();
    for (const Segment& segment : engine_.packs[i].segments) {
      EXPECT_TRUE(seen.insert(segment.adapter.str()).second) << segment.adapter.str() << " again in pass " << i;
    }
  }
  EXPECT_EQ(seen, all);
}

TEST_F(TrainSchedulerTest, RequestsOfOneAdapterThenInOrder) {
  submit("a", {4, 4, 4}, "first");
  submit("a", {2}, "second");
  submit("a", {3}, "third");
  submit("a", {8}, "fourth");
  run();
  EXPECT_THAT(names(), ElementsAre("first", "second", "third", "fourth"));
  EXPECT_EQ(pack(0), "a4 a4");
  EXPECT_EQ(pack(1), "a4 a2 a3") << "those that end with it may go with it";
  EXPECT_EQ(pack(2), "a8");
}

TEST_F(TrainSchedulerTest, ForwardOnlyThenPassesOfTheirOwn) {
  submit("a", {2});
  submit("b", {2}, "b", /*backward=*/false);
  submit("c", {2});
  run();
  ASSERT_EQ(engine_.packs.size(), 2U);
  EXPECT_EQ(pack(0), "a2 c2");
  EXPECT_EQ(pack(1), "b2");
  EXPECT_THAT(engine_.keeps, ElementsAre(true, false));
  EXPECT_EQ(gradient("b"), 0.0);
}

TEST_F(TrainSchedulerTest, ForwardOnlyAmongEndlessTrainingThenSoonServed) {
  submit("a", std::vector<int>(100, 5));
  scheduler_->step();
  submit("b", {2}, "b", /*backward=*/false);
  run();
  EXPECT_LE(answer("b").after_passes, 3U);
}

TEST_F(TrainSchedulerTest, ForwardOfOneFailsThenOnlyItsRequest) {
  engine_.fail_forward_of = AdapterId("b");
  submit("a", {2});
  submit("b", {2});
  submit("c", {2});
  run();
  EXPECT_TRUE(answer("a").result.ok());
  ASSERT_FALSE(answer("b").result.ok());
  EXPECT_EQ(answer("b").result.error().message, "forward failed");
  EXPECT_TRUE(answer("c").result.ok());
  EXPECT_EQ(gradient("a"), -2.0);
  EXPECT_EQ(gradient("b"), 0.0);
  EXPECT_EQ(gradient("c"), -2.0);
  EXPECT_FALSE(recorder_.ended[0].ok());
  EXPECT_EQ(recorder_.ended.size(), recorder_.passes.size());
}

TEST_F(TrainSchedulerTest, BackwardOfOneFailsThenOnlyItsGradientIsRestored) {
  submit("a", {2}, "earlier a");
  submit("b", {3}, "earlier b");
  run();
  engine_.fail_backward_of = AdapterId("b");
  submit("a", {2, 4}, "a");
  submit("b", {2, 2, 2, 2, 2, 2}, "b");
  submit("c", {1}, "c");
  run();
  EXPECT_FALSE(answer("b").result.ok());
  ASSERT_TRUE(answer("a").result.ok());
  EXPECT_TRUE(answer("c").result.ok());
  EXPECT_EQ(answer("a").result->logprobs.size(), 2U);
  EXPECT_EQ(gradient("a"), -8.0) << "each datum once, whatever was tried again";
  EXPECT_EQ(gradient("b"), -3.0) << "what came before the request stays";
  EXPECT_EQ(gradient("c"), -1.0);
}

TEST_F(TrainSchedulerTest, LaterPassOfALargeRequestFailsThenItsEarlierPassesAreUndone) {
  submit("a", {5}, "earlier");
  run();
  submit("a", {5, 5, 5, 5}, "large");
  submit("a", {1}, "later");
  scheduler_->step();
  EXPECT_EQ(gradient("a"), -15.0);
  engine_.fail_forward = 3;
  run();
  EXPECT_FALSE(answer("large").result.ok());
  EXPECT_TRUE(answer("later").result.ok());
  EXPECT_EQ(gradient("a"), -6.0);
}

TEST_F(TrainSchedulerTest, SharedPassFailsOnceThenAllRequestsSucceed) {
  engine_.fail_backward = 1;
  submit("a", {2, 3}, "first");
  submit("a", {1}, "second");
  submit("b", {4});
  run();
  for (const Answer& answer : answers_) EXPECT_TRUE(answer.result.ok()) << answer.name;
  EXPECT_EQ(gradient("a"), -6.0);
  EXPECT_EQ(gradient("b"), -4.0);
  EXPECT_EQ(answer("first").result->metrics.at("loss:sum"), [&] {
    double sum = 0;
    for (const int length : {2, 3}) {
      for (int i = 0; i < length; ++i) sum -= double{FakeTrainingEngine::logprob(i + 1, i, i + 2)};
    }
    return sum;
  }());
}

TEST_F(TrainSchedulerTest, MarkOfOneFailsThenOnlyItsRequest) {
  engine_.fail_mark_of = AdapterId("b");
  submit("a", {2});
  submit("b", {2});
  run();
  EXPECT_TRUE(answer("a").result.ok());
  EXPECT_FALSE(answer("b").result.ok());
  EXPECT_EQ(gradient("b"), 0.0);
}

TEST_F(TrainSchedulerTest, CancelledHalfWayThenItsGradientIsRestoredAndOthersContinue) {
  submit("a", {3}, "earlier");
  run();
  submit("a", {8, 8}, "a");
  submit("a", {1}, "a later");
  submit("b", {2});
  scheduler_->step();
  EXPECT_EQ(gradient("a"), -11.0);
  scheduler_->cancel(AdapterId("a"), Error{ErrorCode::kGone, "the run was unloaded", ""});
  EXPECT_EQ(gradient("a"), -3.0);
  ASSERT_TRUE(engine_.adapters().remove(AdapterId("a")).ok());
  run();
  EXPECT_EQ(answer("a").result.error().code, ErrorCode::kGone);
  EXPECT_EQ(answer("a later").result.error().code, ErrorCode::kGone);
  EXPECT_TRUE(answer("b").result.ok());
  scheduler_->cancel(AdapterId("nobody"), internal_error("nothing to do"));
}

TEST_F(TrainSchedulerTest, NewRequestFromAnAnswerThenItRuns) {
  TrainRequest request{AdapterId("a"), {datum_of(2)}, "cross_entropy", {}, true};
  ASSERT_TRUE(scheduler_->submit(std::move(request), [&](const auto&) { submit("a", {3}, "next"); }).ok());
  run();
  EXPECT_THAT(names(), ElementsAre("next"));
  EXPECT_EQ(gradient("a"), -5.0);
}

TEST_F(TrainSchedulerTest, MissingAdapterThenOnlyItsRequestFails) {
  submit("a", {2});
  submit("b", {2});
  engine_.fail_forward_of = AdapterId("a");  // as if the adapter did not exist
  run();
  EXPECT_FALSE(answer("a").result.ok());
  EXPECT_TRUE(answer("b").result.ok());
}

TEST_F(TrainSchedulerTest, QueueWithALongDatumSavesCreditAndReportsIt) {
  EXPECT_EQ(scheduler_->deficit_max(), 0);
  submit("a", {4, 4, 4, 4});
  submit("b", {9, 9});
  scheduler_->step();
  EXPECT_GT(scheduler_->deficit_max(), 0) << "what did not fit beside the other one";
  EXPECT_LE(scheduler_->deficit_max(), 10);
  while (!scheduler_->idle()) scheduler_->step();
  EXPECT_EQ(scheduler_->deficit_max(), 0);
}

}  // namespace
}  // namespace tuft::engine
