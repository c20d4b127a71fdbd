// Tests of the engine loop with operations of our own: queues that wait for pages, turns at the engine, and what
// happens if memory runs out.
#include "worker/engine_loop.h"

#include <filesystem>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/failing_allocations.h"
#include "loss_graph/testing/graph_builder.h"
#include "telemetry/testing/recorded_metrics.h"
#include "worker/tests/engine_loop_fixture.h"

namespace tuft::worker {
namespace {

using telemetry::testing::RecordedMetrics;

// The adapter's page is lost while an operation that ends its queue has its turn.
TEST_F(EngineLoopTest, APageIsLostThenAQueueWithItsTurnGoesOn) {
  start(60, false);                                          // room for one adapter
  for (const char* name : {"a", "b"}) create_adapter(name);  // "a" is in its page now
  auto needs = post({.queue = "a", .needs_adapter = true});
  run_engine();
  engine_.before_create = [](const engine::AdapterId&) { return Status(data_loss("the page is damaged")); };
  auto ends = post({.queue = "a", .ends_queue = true});
  while (loop_->run_page_step()) {
  }
  run_engine();  // finds the operation and behind it the page
  ASSERT_TRUE(is_ready(needs));
  EXPECT_FALSE(needs.get().ok());
  ASSERT_TRUE(is_ready(ends));
  EXPECT_TRUE(ends.get().ok());
}

TEST_F(EngineLoopTest, TenantsTakeTurnsAtTheEngine) {
  start(0, false);
  std::string order;
  std::vector<std::future<Status>> all;
  const auto add = [&](const std::string& queue, const std::string& tenant) {
    all.push_back(
        post({.queue = queue, .tenant = tenant, .run = [&order, tenant](EngineContext&) { order += tenant.front(); }}));
  };
  for (int i = 0; i < 50; ++i) add("create " + std::to_string(i), "heavy");
  for (int i = 0; i < 2; ++i) add("publish " + std::to_string(i), "light");
  run_engine();
  for (auto& one : all) EXPECT_TRUE(one.get().ok());
  EXPECT_EQ(order.substr(0, 4), "hlhl");
  EXPECT_EQ(order.size(), 52U);
}

TEST_F(EngineLoopTest, TurnsTakeLongThenAPassComesFirst) {
  start(0, false);
  create_training("a");
  int turns = 0;
  int turns_before_pass = -1;
  engine_.before_forward = [&](const engine::Pack&) {
    turns_before_pass = turns;
    return Status();
  };
  post_training("a");
  std::vector<std::future<Status>> all;
  for (int i = 0; i < 30; ++i) {
    all.push_back(post({.queue = "create " + std::to_string(i), .run = [&](EngineContext&) {
                          clock_.advance(kSecond);
                          ++turns;
                        }}));
  }
  run_engine();
  for (auto& one : all) EXPECT_TRUE(one.get().ok());
  EXPECT_EQ(turns_before_pass, 0);
}

TEST_F(EngineLoopTest, OneTenantCreatesFasterThanPagesAreWrittenThenAnotherIsNotRefused) {
  start(60, false);  // room for three samplers
  const auto create_of = [&](const std::string& tenant, int number) {
    const engine::AdapterId id(tenant + std::to_string(number));
    auto created = post({.queue = id.str(), .run = [id, tenant](EngineContext& context) {
                           const Status status =
                               context.adapters.create(id, engine::detached({}), AdapterKind::kSampler, tenant);
                           EXPECT_EQ(status.ok(), context.adapters.exists(id));
                         }});
    run_engine();
    EXPECT_TRUE(created.get().ok());
    return id;
  };
  for (int i = 0; i < 10; ++i) create_of("heavy", i);
  const engine::AdapterId light = create_of("light", 0);
  const engine::AdapterId refused("heavy9");
  auto looked = post({.queue = "look", .run = [&](EngineContext& context) {
                        EXPECT_TRUE(context.adapters.exists(light));
                        EXPECT_FALSE(context.adapters.exists(refused));
                      }});
  run_all();
  EXPECT_TRUE(looked.get().ok());
}

// The passes of one user, one after the other, beside the loads of another.
TEST_F(EngineLoopTest, PassesAreShortThenTurnsTakeNoMoreTimeThanThey) {
  start(0, false);
  create_training("a");
  int turns = 0;
  std::vector<int> turns_before_pass;
  engine_.before_forward = [&](const engine::Pack&) {
    clock_.advance(20 * kMillisecond);
    turns_before_pass.push_back(std::exchange(turns, 0));
    return Status();
  };
  std::vector<std::future<Status>> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(post({.queue = "load " + std::to_string(i), .run = [&](EngineContext&) {
                          clock_.advance(4 * kMillisecond);
                          ++turns;
                        }}));
  }
  for (size_t passes = 1; passes <= 2; ++passes) {
    post_training("a");
    while (turns_before_pass.size() < passes) ASSERT_TRUE(loop_->run_engine_step());
  }
  EXPECT_EQ(turns_before_pass[0], 0);
  EXPECT_EQ(turns_before_pass[1], 5);
  run_engine();
  for (auto& one : all) EXPECT_TRUE(one.get().ok());
}

TEST_F(EngineLoopTest, OperationsThenOnlyThoseThatHaveBegunAreRunning) {
  const RecordedMetrics metrics;
  start(0, false);
  const auto requests = [&](const char* state) {
    return metrics.gauge("tuft.scheduler.requests", {{"base_model", "m"}, {"state", state}});
  };
  auto file = post({.queue = "a", .file = [] {}});
  std::vector<std::future<Status>> others;
  for (const char* queue : {"a", "b", "c"}) others.push_back(post({.queue = queue}));
  EXPECT_TRUE(loop_->run_engine_step());
  EXPECT_EQ(requests("running"), 1) << "its file is written";
  EXPECT_EQ(requests("waiting"), 3);
  run_engine();
  EXPECT_EQ(requests("running"), 1);
  EXPECT_EQ(requests("waiting"), 1) << "behind the first one";
  EXPECT_TRUE(loop_->run_file_step());
  run_engine();
  EXPECT_EQ(requests("running"), 0);
  EXPECT_EQ(requests("waiting"), 0);
  EXPECT_TRUE(file.get().ok());
  for (auto& other : others) EXPECT_TRUE(other.get().ok());
}

TEST_F(EngineLoopTest, TheTrainingSchedulerHasThemThenTheyAreRunning) {
  const RecordedMetrics metrics;
  start(0, false);
  const auto requests = [&](const char* state) {
    return metrics.gauge("tuft.scheduler.requests", {{"base_model", "m"}, {"state", state}});
  };
  create_training("a");
  engine_.before_forward = [&](const engine::Pack&) {
    clock_.advance(kMillisecond);
    return Status();
  };
  post_training("a");
  EXPECT_TRUE(loop_->run_engine_step());
  auto other = post({.queue = "between two passes"});
  for (int i = 0; i < 3; ++i) post_training("a");
  EXPECT_TRUE(loop_->run_engine_step());
  EXPECT_TRUE(other.get().ok());
  EXPECT_EQ(requests("running"), 3);
  EXPECT_EQ(requests("waiting"), 0);
  run_engine();
  EXPECT_EQ(requests("running"), 0);
}

// Pages come and go without a piece of training. In the fake engine the weights of each adapter take 100 bytes.
TEST_F(EngineLoopTest, ASamplerLeavesForAnotherThenTheMemoryOfAdaptersFollows) {
  const RecordedMetrics metrics;
  start(20, false);  // room for one
  const auto weights = [&] { return metrics.gauge("tuft.lora.memory", {{"base_model", "m"}, {"part", "weights"}}); };
  create_sampler("v", "light");
  create_sampler("g", "heavy");  // "v" is in its page now
  EXPECT_EQ(weights(), 100);
  std::vector<std::future<Status>> all;
  all.push_back(sample_from("v", "light"));
  EXPECT_TRUE(loop_->run_engine_step());
  EXPECT_EQ(weights(), 0) << "\"g\" has left, and \"v\" is read";
  while (loop_->run_page_step()) {
  }
  EXPECT_TRUE(loop_->run_engine_step());
  EXPECT_EQ(weights(), 100);
  expect_all_end(all);
}

TEST_F(EngineLoopTest, PeakOfTheDeviceIsAssumedThenCustomLossesCountByIt) {
  engine_.assumed_peak = 1e15;
  start(0, false);
  const engine::AdapterId adapter = training_adapter("a");
  auto created =
      post({.queue = adapter.str(), .run = [&](EngineContext& context) {
              EXPECT_TRUE(context.adapters.create(adapter, engine::detached({}), AdapterKind::kTraining, "").ok());
            }});
  run_engine();
  EXPECT_TRUE(created.get().ok());
  int passes = 0;
  engine_.before_forward = [&](const engine::Pack&) {
    ++passes;
    return Status();
  };
  loss_graph::testing::GraphBuilder graph;
  graph.call("loss", ".sum", loss_graph::testing::Json::array({loss_graph::testing::ref("logprobs")})).output("loss");
  engine::TrainRequest request;
  request.adapter = adapter;
  request.loss_fn = "custom";
  request.custom_loss = graph.parse().value();
  for (int i = 0; i < 2; ++i) {
    engine::Datum& datum = request.data.emplace_back();
    datum.tokens = {3};
    datum.loss_inputs["target_tokens"] = {{1}, std::vector<int64_t>{4}};
    datum.custom_elements = 100;  // as much as some 50 tokens on a CPU, and more than a pass on such a device
  }
  v1::ForwardBackwardRequest message;
  message.set_adapter_id("a");
  loop_->post(
      make_forward_backward({message, {}, [](const auto& result) { EXPECT_TRUE(result.ok()); }}, std::move(request)));
  run_engine();
  EXPECT_EQ(passes, 2);
}

// In the fake engine an adapter takes 60 bytes.
TEST_F(EngineLoopTest, TooMuchWaitsForItsPageThenNewAdaptersAreRefused) {
  const RecordedMetrics metrics;
  start(60, false);
  const auto create_now = [&](const std::string& name) {
    Status status;
    auto done = post({.queue = name, .run = [&](EngineContext& context) {
                        status = context.adapters.create(engine::AdapterId(name), engine::detached({}),
                                                         AdapterKind::kTraining, "");
                      }});
    run_engine();
    EXPECT_TRUE(done.get().ok());
    return status;
  };
  EXPECT_TRUE(create_now("a").ok());
  EXPECT_TRUE(create_now("b").ok());  // the page of "a" waits for the page thread
  const Status refused = create_now("c");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "adapter_memory_bytes");
  EXPECT_EQ(
      metrics.counter("tuft.scheduler.admission.rejections", {{"base_model", "m"}, {"reason", "adapter_memory_bytes"}}),
      1);
  EXPECT_EQ(metrics.gauge("tuft.lora.page.pending", {{"base_model", "m"}}), 60);
  EXPECT_TRUE(loop_->run_page_step());
  run_engine();
  EXPECT_EQ(metrics.gauge("tuft.lora.page.pending", {{"base_model", "m"}}), 0);
  EXPECT_TRUE(create_now("c").ok()) << "the page was written";
}

// The page of a sampler stays valid, so it leaves without one being written.
TEST_F(EngineLoopTest, TooMuchWaitsForItsPageThenASamplerWithAPageMakesRoom) {
  start(120, false);
  const auto run_now = [&](Script script) {
    auto done = post(std::move(script));
    run_engine();
    EXPECT_TRUE(done.get().ok());
  };
  const auto create_now = [&](const std::string& name, AdapterKind kind = AdapterKind::kTraining) {
    run_now({.queue = name, .run = [=](EngineContext& context) {
               EXPECT_TRUE(context.adapters.create(engine::AdapterId(name), engine::detached({}), kind, "").ok())
                   << name;
             }});
  };
  create_now("sampler", AdapterKind::kSampler);
  create_now("a");
  create_now("b");
  create_now("c");
  while (loop_->run_page_step()) run_engine();
  auto back = post({.queue = "sampler", .needs_adapter = true});
  run_engine();
  while (loop_->run_page_step()) run_engine();
  ASSERT_TRUE(back.get().ok());
  for (const char* name : {"d", "e", "f"}) {
    create_now(name);
    if (*name != 'f') run_now({.queue = "sampler", .needs_adapter = true});
  }
}

TEST_F(EngineLoopTest, AUserKeepsSamplersAtWorkThenThatOfAnotherUserComesIn) {
  start(40, false);  // room for two
  create_sampler("v", "light");
  clock_.advance(11 * kSecond);                                               // it is not used
  for (const char* sampler : {"g1", "g2"}) create_sampler(sampler, "heavy");  // "v" is in its page now
  std::vector<std::future<Status>> heavy;
  std::future<Status> light;
  int steps = 0;
  for (; steps < 100 && !(light.valid() && is_ready(light)); ++steps) {
    for (const char* sampler : {"g1", "g2"}) heavy.push_back(sample_from(sampler, "heavy"));
    loop_->run_engine_step();
    loop_->run_page_step();
    if (steps == 0) light = sample_from("v", "light");
  }
  EXPECT_LT(steps, 100) << "it waited for samples that began after it";
  heavy.push_back(std::move(light));
  expect_all_end(heavy);
}

TEST_F(EngineLoopTest, AnAdapterWaitsThenOnlyTheUserWithMostAtWorkYields) {
  const RecordedMetrics metrics;
  const RecordedMetrics::LabelList samplers = {{"base_model", "m"}, {"kind", "sampler"}};
  start(60, false);  // room for three
  create_sampler("w", "third");
  clock_.advance(11 * kSecond);  // it is not used
  create_sampler("v", "light");
  for (const char* sampler : {"g1", "g2"}) create_sampler(sampler, "heavy");  // "w" is in its page now
  std::vector<std::future<Status>> all;
  all.push_back(sample_from("v", "light", 30));
  for (const char* sampler : {"g1", "g2"}) all.push_back(sample_from(sampler, "heavy", 30));
  ASSERT_TRUE(loop_->run_engine_step());
  auto third = sample_from("w", "third");
  auto heavy = sample_from("g1", "heavy");
  auto light = sample_from("v", "light");
  while (!is_ready(light)) ASSERT_TRUE(loop_->run_engine_step());
  EXPECT_FALSE(is_ready(third));
  EXPECT_FALSE(is_ready(heavy)) << "it waits until what runs has made room";
  EXPECT_EQ(metrics.gauge("tuft.lora.adapters.waiting", samplers), 1) << "that of the third user";
  for (auto* sample : {&third, &heavy, &light}) all.push_back(std::move(*sample));
  expect_all_end(all);
  EXPECT_EQ(metrics.gauge("tuft.lora.adapters.waiting", samplers), 0);
}

TEST_F(EngineLoopTest, ManySamplersOfOneUserWaitThenUsersTakeTurns) {
  start(20, false);  // room for one
  create_sampler("v", "light");
  const std::vector<std::string> names = {"g1", "g2", "g3", "g4", "g5"};
  for (const std::string& name : names) create_sampler(name, "heavy");
  std::vector<std::future<Status>> all;
  for (const std::string& name : names) all.push_back(sample_from(name, "heavy"));
  all.push_back(sample_from("v", "light"));
  expect_all_end(all);
  ASSERT_EQ(samples_ended_.size(), 6U);
  EXPECT_EQ(samples_ended_[2], "v") << "behind one that has room and one that waits";
}

TEST_F(EngineLoopTest, AnAdapterWorksForLongThenItIsUsedUntilThatEnds) {
  start(120, false);  // room for two
  create_kind("x", AdapterKind::kTraining, "one");
  for (const char* adapter : {"a", "b"}) create_kind(adapter, AdapterKind::kTraining, "many");
  const auto use = [&](const std::string& adapter, const std::string& tenant, Nanos time) {
    auto used = post({.queue = adapter, .tenant = tenant, .needs_adapter = true, .run = [&, time](EngineContext&) {
                        clock_.advance(time);
                      }});
    run_engine();
    const bool stayed = is_ready(used);
    run_all();
    EXPECT_TRUE(used.get().ok()) << adapter;
    return stayed;
  };
  EXPECT_TRUE(use("x", "one", 12 * kSecond));
  for (const char* adapter : {"a", "b"}) EXPECT_FALSE(use(adapter, "many", 0)) << "it was in its page";
  EXPECT_TRUE(use("x", "one", 0)) << "its work has just ended";
}

TEST_F(EngineLoopTest, AnAdapterIsRemovedBeforeItsPageIsWrittenThenItIsNotWritten) {
  const RecordedMetrics metrics;
  start(60, false);
  auto done = post({.queue = "a", .run = [&](EngineContext& context) {
                      for (const char* name : {"a", "b"}) {
                        const engine::AdapterId id(name);
                        EXPECT_TRUE(context.adapters.create(id, engine::detached({}), AdapterKind::kTraining, "").ok());
                      }
                    }});
  run_engine();
  EXPECT_TRUE(done.get().ok());
  // "a" was at work, so "b" started in its page.
  auto removed = post({.queue = "b", .run = [&](EngineContext& context) {
                         EXPECT_TRUE(context.adapters.remove(engine::AdapterId("b")).ok());
                       }});
  run_engine();
  EXPECT_TRUE(removed.get().ok());
  EXPECT_TRUE(loop_->run_page_step());
  run_engine();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "pages"));
  EXPECT_EQ(
      metrics.count("tuft.lora.page.duration", {{"base_model", "m"}, {"direction", "out"}, {"result", "dropped"}}), 1U);
  EXPECT_EQ(metrics.gauge("tuft.lora.page.pending", {{"base_model", "m"}}), 0);
}

TEST_F(EngineLoopTest, MemoryRunsOutWhenAHeldSampleIsCancelledThenItEndsAllTheSame) {
  start(20, false);  // room for one
  create_sampler("v", "light");
  create_sampler("g", "heavy");  // "v" is in its page now
  samples_ended_.reserve(2);
  const auto hold_and_cancel = [&](const std::string& sampler, int64_t allocation) {
    auto held = sample_from(sampler, "light");
    const EngineLoop::Ticket ticket = loop_->next_ticket() - 1;
    EXPECT_TRUE(loop_->run_engine_step());
    EXPECT_FALSE(is_ready(held)) << "its adapter is in its page";
    FailingAllocations::start(allocation);
    loop_->cancel_sample(ticket);
    run_engine();
    EXPECT_TRUE(FailingAllocations::stop());
    run_all();
    EXPECT_TRUE(is_ready(held));
    return held.get();
  };
  EXPECT_TRUE(hold_and_cancel("v", 0).ok()) << "nobody heard of the cancel";
  const Status cancelled = hold_and_cancel("g", 1);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

// std::deque holds 64 pointers in a block, and needs memory when the last place of a block is taken. That is the place
// of what ends the queue, or of the operation that waits before it.
TEST_F(EngineLoopTest, MemoryRunsOutForTheEndOfAQueueThenWhatHasItsTurnGoesOn) {
  start(0, false);
  for (const int count : {63, 64}) {
    bool failed = true;
    for (int64_t allocation = 0; failed; ++allocation) {
      std::vector<std::future<Status>> all;
      for (int i = 0; i < count; ++i) all.push_back(post({.queue = "a"}));
      for (int i = 1; i < count; ++i) ASSERT_TRUE(loop_->run_engine_step());
      ASSERT_FALSE(is_ready(all.back())) << "it has its turn";
      all.push_back(post({.queue = "a", .ends_queue = true}));
      FailingAllocations::start(allocation);
      loop_->run_engine_step();
      failed = FailingAllocations::stop();
      run_engine();
      for (auto& one : all) {
        ASSERT_TRUE(is_ready(one)) << count << ' ' << allocation;
        const Status status = one.get();
        if (status.ok()) continue;
        EXPECT_TRUE(status.error().reason == "out_of_memory" || status.error().reason == "adapter_removed");
      }
    }
  }
}

TEST_F(EngineLoopTest, MemoryRunsOutInAStepThenItsSamplesFail) {
  start();
  int steps = 0;
  engine_.before_step = [&](auto) -> Status {
    if (++steps == 2) throw std::bad_alloc();
    return {};
  };
  const Status failed = sample().get();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason, "out_of_memory");
  EXPECT_FALSE(is_user_error(failed.error().code));
  EXPECT_TRUE(sample().get().ok());
  loop_->stop();
  EXPECT_EQ(engine_.open_sequences(), 0U);
}

TEST_F(EngineLoopTest, MemoryRunsOutWhileAStepIsPlannedThenItsSamplesFail) {
  start();
  int opened = 0;
  engine_.before_open = [&] {
    if (++opened == 1) throw std::bad_alloc();
  };
  const Status failed = sample().get();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason, "out_of_memory");
  EXPECT_TRUE(sample().get().ok());
}

TEST_F(EngineLoopTest, AnyAllocationOfTheEngineThreadFailsThenEveryCallIsAnswered) {
  start(60);
  for (int64_t allocation = 0; allocation < 400; ++allocation) {
    const std::string name = "adapter " + std::to_string(allocation) + " with a name that needs memory";
    create(name);
    // The next allocations are those of the calls below, in the order in which they arrive.
    EXPECT_TRUE(
        post({.queue = "arm", .run = [&](EngineContext&) { FailingAllocations::start(allocation); }}).get().ok());
    auto sampled = sample();
    auto first = post({.queue = name, .needs_adapter = true});
    auto file = post({.queue = "a queue with a name that needs memory", .file = [] {}});
    auto last = post({.queue = name, .ends_queue = true});
    for (auto* answer : {&sampled, &first, &file, &last}) {
      const Status status = answer->get();
      if (!status.ok()) {
        EXPECT_TRUE(status.error().reason == "out_of_memory" || status.error().reason == "adapter_removed");
      }
    }
    // The allocation may be one of this call.
    while (!post({.queue = "disarm", .run = [](EngineContext&) { FailingAllocations::stop(); }}).get().ok()) {
    }
  }
  loop_->stop();
  EXPECT_EQ(engine_.open_sequences(), 0U);
}

}  // namespace
}  // namespace tuft::worker
