// Tests of training by several clients: their datums share passes, and none delays another.
#include <algorithm>
#include <future>

#include "base/testing/failing_allocations.h"
#include "engine/lora.h"
#include "telemetry/testing/recorded_metrics.h"
#include "telemetry/tests/collector_fixture.h"
#include "worker/tests/service_fixture.h"

namespace tuft::worker {
namespace {

using telemetry::testing::ReceivedSpan;
using telemetry::testing::text_of;

class TrainingBatchTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    for (const char* id : {"a", "b", "c", "d"}) ASSERT_TRUE(create_adapter(id).status.ok());
    engine_.before_forward = [this](const engine::Pack& pack) -> Status {
      std::string text;
      for (const engine::Segment& segment : pack.segments) text += segment.adapter.str().substr(6);
      passes_.push_back(text);
      gate_.pass();
      return text.find(broken_) == std::string::npos ? Status() : internal_error("broken");
    };
    engine_.before_steps = [this](std::span<const engine::AdapterStep> steps) {
      std::string text;
      for (const engine::AdapterStep& step : steps) text += step.adapter.str().substr(6);
      steps_.push_back(text);
    };
  }

  struct Trained {
    std::future<Result<v1::ForwardBackwardResponse>> answer;
    bool ok() { return answer.get().ok(); }
  };
  // The operation is accepted when this returns.
  Trained post_train(const std::string& id, int datums, int tokens = 1) {
    engine::TrainRequest request;
    request.adapter = training_adapter(id);
    request.loss_fn = "cross_entropy";
    for (int i = 0; i < datums; ++i) {
      engine::Datum& datum = request.data.emplace_back();
      datum.tokens.assign(static_cast<size_t>(tokens), 3);
      datum.loss_inputs["target_tokens"] = {{tokens}, std::vector<int64_t>(static_cast<size_t>(tokens), 4)};
    }
    auto promise = std::make_shared<std::promise<Result<v1::ForwardBackwardResponse>>>();
    Trained trained{promise->get_future()};
    auto message = std::make_shared<v1::ForwardBackwardRequest>();
    message->set_adapter_id(id);
    auto reply = [this, promise, id, message](auto result) {
      answered_.push_back(id);
      promise->set_value(std::move(result));
    };
    loop_->post(make_forward_backward({*message, caller_of(id), std::move(reply)}, std::move(request)));
    return trained;
  }
  std::future<bool> post_optim(const std::string& id) {
    auto request = std::make_shared<v1::OptimStepRequest>();
    request->set_adapter_id(id);
    request->mutable_params()->set_beta1(0.9);
    request->mutable_params()->set_beta2(0.9);
    auto promise = std::make_shared<std::promise<bool>>();
    auto future = promise->get_future();
    auto reply = [this, promise, id, request](const auto& result) {
      answered_.push_back("optim " + id);
      promise->set_value(result.ok());
    };
    loop_->post(make_operation(Call<rpc::OptimStep>{*request, caller_of(id), std::move(reply)}));
    return future;
  }
  std::future<Status> post_remove(const std::string& id) {
    auto request = std::make_shared<v1::RemoveAdapterRequest>();
    request->set_adapter_id(id);
    auto promise = std::make_shared<std::promise<Status>>();
    auto future = promise->get_future();
    auto reply = [promise, request](const auto& result) {
      promise->set_value(result.ok() ? Status() : Status(result.error()));
    };
    loop_->post(make_operation(Call<rpc::RemoveAdapter>{*request, caller_of(id), std::move(reply)}));
    return future;
  }
  // Each client has its own trace.
  static telemetry::SpanContext trace_of(const std::string& id) {
    return {.trace_id_high = 1, .trace_id_low = static_cast<uint64_t>(id[0]), .span_id = 5, .flags = 1};
  }
  static Caller caller_of(const std::string& id) {
    Caller caller;
    caller.trace = trace_of(id);
    caller.ids.set_session_id("session-" + id);
    caller.arrived = system_clock().monotonic();
    return caller;
  }

  // The engine thread waits in a pass of "a" until the gate opens; what is posted meanwhile is there all at once.
  Trained hold() {
    gate_.close();
    auto arrived = gate_.arrival();
    Trained first = post_train("a", 1);
    arrived.wait();
    return first;
  }

  // Belongs to the engine thread until the last answer.
  std::vector<std::string> passes_;
  std::vector<std::string> steps_;  // of the optimizer
  std::vector<std::string> answered_;
  std::string broken_ = "none";
};

TEST_F(TrainingBatchTest, RequestsOfSeveralClientsThenOnePass) {
  Trained a = hold();
  Trained b = post_train("b", 1);
  Trained c = post_train("c", 2);
  Trained d = post_train("d", 1);
  gate_.open();
  const auto answer = c.answer.get();
  EXPECT_TRUE(a.ok() && b.ok() && d.ok());
  stop();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->passes(), 1);
  EXPECT_EQ(answer->tokens(), 2);
  EXPECT_EQ(passes_, (std::vector<std::string>{"a", "bccd"}));
}

TEST_F(TrainingBatchTest, AnyAllocationAfterAStepFailsThenTheStepIsAnsweredAsDone) {
  constexpr int64_t kAllocations = 40;
  answered_.reserve(2 * kAllocations);
  steps_.reserve(2 * kAllocations);
  for (int64_t allocation = 0; allocation < kAllocations; ++allocation) {
    engine_.before_steps = [](std::span<const engine::AdapterStep>) { FailingAllocations::stop(); };
    engine_.after_steps = [allocation] { FailingAllocations::start(allocation); };
    EXPECT_TRUE(post_optim("a").get()) << allocation;
    engine_.after_steps = [] { FailingAllocations::stop(); };
    while (!post_optim("b").get()) {
    }
  }
}

TEST_F(TrainingBatchTest, OptimStepThenOnlyItsOwnLaneWaits) {
  Trained a = hold();
  Trained b = post_train("b", 6);
  auto stepped = post_optim("b");
  Trained after = post_train("b", 1);
  Trained c = post_train("c", 1);
  auto stepped_c = post_optim("c");
  Trained after_c = post_train("c", 1);
  gate_.open();
  EXPECT_TRUE(a.ok() && b.ok() && c.ok() && after.ok() && after_c.ok() && stepped.get() && stepped_c.get());
  stop();
  const auto place = [&](const std::string& name, int occurrence = 0) {
    auto at = std::find(answered_.begin(), answered_.end(), name);
    if (occurrence == 1) at = std::find(at + 1, answered_.end(), name);
    return at - answered_.begin();
  };
  EXPECT_LT(place("b"), place("optim b"));
  EXPECT_LT(place("optim b"), place("b", 1));
  EXPECT_LT(place("c"), place("optim c"));
  EXPECT_LT(place("optim c"), place("c", 1));
  EXPECT_LT(place("optim c"), place("b")) << "the small request does not wait for the large one";
}

TEST_F(TrainingBatchTest, OptimStepsOfSeveralClientsThenTakenTogether) {
  Trained a = hold();
  std::vector<std::future<bool>> stepped;
  for (const char* id : {"b", "c", "d"}) stepped.push_back(post_optim(id));
  Trained after = post_train("c", 1);
  auto later = post_optim("a");
  gate_.open();
  for (auto& step : stepped) EXPECT_TRUE(step.get());
  EXPECT_TRUE(a.ok() && after.ok() && later.get());
  stop();
  ASSERT_FALSE(steps_.empty());
  EXPECT_EQ(steps_[0].substr(0, 3), "bcd");
  EXPECT_EQ(std::count(answered_.begin(), answered_.end(), "optim b"), 1);
}

// Steps among the turns of others do not come one after the other before a pass.
TEST_F(TrainingBatchTest, OthersKeepTakingTurnsAndStepsThenAPassRunsAllTheSame) {
  constexpr int kTurns = 400;
  answered_.reserve(2 * kTurns);
  Trained a = hold();
  std::vector<std::future<void>> turns;
  std::vector<std::future<bool>> steps;
  for (int i = 0; i < kTurns; ++i) {
    std::packaged_task<void()> turn([this] { answered_.emplace_back("turn"); });
    turns.push_back(turn.get_future());
    loop_->post(std::make_unique<EngineWork>(std::move(turn)));
    if (i % 40 == 0) steps.push_back(post_optim("c"));
  }
  Trained b = post_train("b", 1);
  gate_.open();
  EXPECT_TRUE(a.ok() && b.ok());
  for (auto& step : steps) EXPECT_TRUE(step.get());
  for (auto& turn : turns) turn.wait();
  stop();
  const auto pass = std::find(answered_.begin(), answered_.end(), "b");
  EXPECT_LE(std::count(answered_.begin(), pass, "optim c"), 1);
}

TEST_F(TrainingBatchTest, AStepOfAnAdapterThatIsNotThereThenTheOthersAreTaken) {
  Trained a = hold();
  auto nobody = post_optim("nobody");
  auto stepped = post_optim("b");
  gate_.open();
  EXPECT_TRUE(a.ok() && stepped.get());
  EXPECT_FALSE(nobody.get());
}

TEST_F(TrainingBatchTest, AdapterIsRemovedThenWhatWaitsForItFailsAtOnce) {
  Trained a = hold();
  Trained large = post_train("b", 40, 4);
  auto step = post_optim("b");
  Trained later = post_train("b", 1);
  auto removed = post_remove("b");
  Trained c = post_train("c", 1);
  gate_.open();
  EXPECT_TRUE(removed.get().ok());
  EXPECT_TRUE(a.ok() && c.ok());
  EXPECT_FALSE(step.get());
  for (Trained* trained : {&large, &later}) {
    const auto answer = trained->answer.get();
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().reason, "adapter_removed");
  }
  stop();
  for (const std::string& pass : passes_) EXPECT_EQ(pass.find('b'), std::string::npos) << pass;
  EXPECT_TRUE(steps_.empty());
}

TEST_F(TrainingBatchTest, AdapterIsRemovedAmidARequestThenTheRestOfItIsNotRun) {
  Trained large = post_train("b", 4000, 4);
  EXPECT_TRUE(post_remove("b").get().ok());
  EXPECT_EQ(large.answer.get().error().reason, "adapter_removed");
  EXPECT_TRUE(create_adapter("b").status.ok());
  EXPECT_TRUE(post_train("b", 1).ok());
  stop();
  EXPECT_LT(passes_.size(), 4000U);
}

TEST_F(TrainingBatchTest, OneClientsPassFailsThenTheOthersAreAnswered) {
  Trained a = hold();
  broken_ = "b";
  Trained b = post_train("b", 1);
  Trained c = post_train("c", 1);
  gate_.open();
  EXPECT_TRUE(a.ok());
  EXPECT_FALSE(b.ok());
  EXPECT_TRUE(c.ok());
  stop();
  EXPECT_EQ(passes_, (std::vector<std::string>{"a", "bc", "b", "c"}));
}

TEST_F(TrainingBatchTest, ARefusedRequestThenTheOnesBesideItInItsLaneGoOn) {
  Trained a = hold();
  Trained good = post_train("b", 1);
  Trained empty = post_train("b", 0);
  Trained later = post_train("b", 1);
  auto stepped = post_optim("b");
  gate_.open();
  EXPECT_TRUE(a.ok() && good.ok() && later.ok() && stepped.get());
  EXPECT_EQ(empty.answer.get().error().reason, "bad_datum");
}

TEST_F(TrainingBatchTest, StoppedWhileRequestsWaitThenAllAreAnswered) {
  Trained a = hold();
  Trained b = post_train("b", 3, 4);
  auto stepped = post_optim("b");
  auto stopped = std::async(std::launch::async, [&] { loop_->stop(); });
  gate_.open();
  stopped.get();
  a.answer.wait();
  b.answer.wait();
  stepped.wait();
}

TEST_F(TrainingBatchTest, SharedPassThenMetricsCountItOnce) {
  const telemetry::testing::RecordedMetrics metrics;
  Trained a = hold();
  Trained b = post_train("b", 2);
  Trained c = post_train("c", 1);
  gate_.open();
  EXPECT_TRUE(a.ok() && b.ok() && c.ok());
  const telemetry::testing::RecordedMetrics::LabelList model = {{"base_model", "tiny"}};
  EXPECT_EQ(metrics.counter("tuft.scheduler.steps", {{"base_model", "tiny"}, {"phase", "train"}}), 2);
  EXPECT_EQ(metrics.sum("tuft.scheduler.batch.tokens", model), 4);
  EXPECT_EQ(metrics.sum("tuft.scheduler.batch.adapters", model), 3);
  EXPECT_EQ(metrics.count("tuft.training.micro_batches", model), 3U);
  EXPECT_EQ(metrics.sum("tuft.training.batch.requests", model), 3);
  EXPECT_EQ(metrics.sum("tuft.training.batch.runs", {{"base_model", "tiny"}, {"phase", "train"}}), 3);
  EXPECT_EQ(metrics.sum("tuft.training.batch.fill", model), 4.0 / 4) << "1 and 3 tokens of 4";
}

TEST_F(TrainingBatchTest, SharedStepsThenMetricsCountThemOnce) {
  const telemetry::testing::RecordedMetrics metrics;
  Trained a = hold();
  auto b = post_optim("b");
  auto c = post_optim("c");
  gate_.open();
  EXPECT_TRUE(a.ok() && b.get() && c.get());
  const telemetry::testing::RecordedMetrics::LabelList optim = {{"base_model", "tiny"}, {"phase", "optim"}};
  EXPECT_EQ(metrics.counter("tuft.scheduler.steps", optim), 1);
  EXPECT_EQ(metrics.sum("tuft.training.batch.runs", optim), 2);
}

TEST_F(TrainingBatchTest, SharedStepsThenOneSpanLinksToAll) {
  telemetry::WithCollector collector;
  Trained a = hold();
  auto b = post_optim("b");
  auto c = post_optim("c");
  gate_.open();
  EXPECT_TRUE(a.ok() && b.get() && c.get());
  ASSERT_TRUE(collector.flush());
  ASSERT_TRUE(collector.receiver.wait_until([&] { return collector.span("engine.optim_pass").has_value(); }));
  const ReceivedSpan pass = *collector.span("engine.optim_pass");
  EXPECT_TRUE(pass.parent_span_id.empty());
  EXPECT_EQ(text_of(pass.attributes, "tuft.adapters"), "2");
  EXPECT_FALSE(pass.attributes.contains("tuft.lora_id"));
  ASSERT_EQ(pass.links.size(), 2U);
  for (const char* id : {"b", "c"}) {
    const auto all = collector.receiver.spans();
    const auto step = std::find_if(all.begin(), all.end(), [&](const ReceivedSpan& span) {
      return span.name == "hf_model.optim_step" && span.trace_id == trace_of(id).trace_id_hex();
    });
    ASSERT_NE(step, all.end()) << id;
    EXPECT_TRUE(step->span_id == pass.links[0].span_id || step->span_id == pass.links[1].span_id);
    ASSERT_EQ(step->links.size(), 1U);
    EXPECT_EQ(step->links[0].span_id, pass.span_id);
  }
}

TEST_F(TrainingBatchTest, SharedPassThenOneSpanWithLinksAndNobodysIds) {
  telemetry::WithCollector collector;
  Trained a = hold();
  Trained b = post_train("b", 2);
  Trained c = post_train("c", 1);
  gate_.open();
  EXPECT_TRUE(a.ok() && b.ok() && c.ok());
  ASSERT_TRUE(collector.flush());
  ASSERT_TRUE(collector.receiver.wait_until([&] { return collector.span("engine.train_pass").has_value(); }));
  const ReceivedSpan pass = *collector.span("engine.train_pass");
  const auto all = collector.receiver.spans();
  std::vector<std::string> linked;
  for (const auto& link : pass.links) linked.push_back(link.span_id);
  for (const char* id : {"b", "c"}) {
    const auto whole = std::find_if(all.begin(), all.end(), [&](const ReceivedSpan& span) {
      return span.name == "hf_model.forward_backward" && span.trace_id == trace_of(id).trace_id_hex();
    });
    ASSERT_NE(whole, all.end()) << id;
    EXPECT_EQ(std::count(linked.begin(), linked.end(), whole->span_id), 1) << id;
    const auto part = std::find_if(all.begin(), all.end(), [&](const ReceivedSpan& span) {
      return span.name == "engine.pass" && span.parent_span_id == whole->span_id;
    });
    ASSERT_NE(part, all.end()) << id;
    EXPECT_EQ(text_of(part->attributes, "tuft.lora_id"), id);
    EXPECT_EQ(text_of(part->attributes, "tuft.session_id"), std::string("session-") + id);
    EXPECT_EQ(text_of(part->attributes, "tuft.pass_number"), text_of(pass.attributes, "tuft.pass_number"));
    ASSERT_EQ(part->links.size(), 1U);
    EXPECT_EQ(part->links[0].span_id, pass.span_id);
    EXPECT_EQ(part->start, pass.start);
    EXPECT_EQ(part->end, pass.end);
  }
  EXPECT_EQ(linked.size(), 2U);
  EXPECT_TRUE(pass.parent_span_id.empty());
  EXPECT_EQ(text_of(pass.attributes, "tuft.tokens"), "3");
  EXPECT_EQ(text_of(pass.attributes, "tuft.adapters"), "2");
  for (const ReceivedSpan& span : all) {
    if (span.trace_id != pass.trace_id) continue;
    for (const char* key : {"tuft.lora_id", "tuft.session_id", "tuft.request_id", "tuft.training_run_id"}) {
      EXPECT_FALSE(span.attributes.contains(key)) << span.name << " " << key;
    }
  }
}

}  // namespace
}  // namespace tuft::worker
