// Tests of the threads for files and pages of the engine loop: turns, what is in memory at a time, a file server that
// hangs, and a lack of memory.
#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/failing_allocations.h"
#include "rpc/methods.h"
#include "telemetry/tests/collector_fixture.h"
#include "worker/operation.h"
#include "worker/tests/engine_loop_fixture.h"

namespace tuft::worker {
namespace {

// Posts a call of a worker method.
template <typename Method>
std::future<Status> post_call(EngineLoop& loop, typename Method::Request request) {
  const auto message = std::make_shared<typename Method::Request>(std::move(request));
  const auto ended = std::make_shared<std::promise<Status>>();
  const auto reply = [message, ended](const Result<typename Method::Response>& result) {
    ended->set_value(result.ok() ? Status() : Status(copy_of(result.error())));
  };
  loop.post(make_operation(Call<Method>{*message, {}, reply}));
  return ended->get_future();
}

TEST_F(EngineLoopTest, TenantsTakeTurnsAtTheFiles) {
  start();
  const std::shared_future<void> go_on = go_on_.get_future().share();
  std::vector<std::future<Status>> all;
  std::promise<void> begun;
  all.push_back(post({.queue = "held", .tenant = "heavy", .file = [go_on, &begun] {
                        begun.set_value();
                        go_on.wait();
                      }}));
  begun.get_future().wait();
  std::mutex mutex;
  std::string order;
  const auto use_file = [&](const std::string& queue, const std::string& tenant) {
    all.push_back(post({.queue = queue, .tenant = tenant, .file = [&, tenant] {
                          const std::lock_guard lock(mutex);
                          order += tenant.front();
                        }}));
  };
  for (int i = 0; i < 50; ++i) use_file("load " + std::to_string(i), "heavy");
  for (int i = 0; i < 2; ++i) use_file("save " + std::to_string(i), "light");
  // All of them are with the file thread when this has run: it is behind all of its tenant, and those are the most.
  EXPECT_TRUE(post({.queue = "last", .tenant = "heavy"}).get().ok());
  go_on_.set_value();
  for (auto& one : all) EXPECT_TRUE(one.get().ok());
  EXPECT_EQ(order.substr(0, 4), "hlhl");
  EXPECT_EQ(order.size(), 52U);
}

TEST_F(EngineLoopTest, ManyAdaptersAreLoadedThenFewAreInMemoryBeforeTheEngineTakesThem) {
  start(0, false);
  int read = 0;  // and not taken
  int most = 0;
  std::string order;
  std::vector<std::future<Status>> all;
  const auto load = [&](const std::string& queue, const std::string& tenant) {
    all.push_back(post({.queue = queue,
                        .tenant = tenant,
                        .file = [&] { most = std::max(most, ++read); },
                        .loads = true,
                        .taken =
                            [&, tenant] {
                              --read;
                              order += tenant.front();
                            }}));
  };
  // The engine thread is in a pass of minutes, and the file thread does all that it may.
  const auto run_round = [&] {
    while (loop_->run_file_step()) {
    }
    run_engine();
  };
  for (int i = 0; i < 50; ++i) load("load " + std::to_string(i), "heavy");
  run_engine();
  load("another load", "light");
  auto save = post({.queue = "save", .tenant = "heavy", .file = [] {}});
  run_engine();
  run_round();
  ASSERT_TRUE(is_ready(save)) << "only what loads waits";
  EXPECT_TRUE(save.get().ok());
  for (int i = 0; i < 10; ++i) run_round();
  for (auto& one : all) {
    ASSERT_TRUE(is_ready(one));
    EXPECT_TRUE(one.get().ok());
  }
  EXPECT_EQ(most, 8);
  EXPECT_LE(order.find('l'), 10U) << "users take turns";
  EXPECT_EQ(order.size(), 51U);
}

TEST_F(EngineLoopTest, ManyAdaptersAreMadeThenTwoAreInMemoryBeforeTheEngineTakesThem) {
  start(0, false);
  int made = 0;  // and not taken
  int most = 0;
  std::vector<std::future<Status>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(post({.queue = "new " + std::to_string(i),
                        .file = [&] { most = std::max(most, ++made); },
                        .makes = true,
                        .taken = [&] { --made; }}));
  }
  run_engine();
  EXPECT_FALSE(loop_->run_file_step()) << "the file thread may hang";
  for (int i = 0; i < 10; ++i) {
    while (loop_->run_page_step()) {
    }
    run_engine();
  }
  for (auto& one : all) EXPECT_TRUE(is_ready(one));
  EXPECT_EQ(most, 2);
}

TEST_F(EngineLoopTest, ManySavesWaitForAFileServerThenFewAdaptersAreCopied) {
  start(0, false);
  constexpr int kAdapters = 20;
  std::vector<std::future<Status>> all;
  for (int i = 0; i < kAdapters; ++i) {
    v1::CreateAdapterRequest create;
    create.set_adapter_id(std::to_string(i));
    create.set_optimizer("adamw");
    create.mutable_spec()->set_rank(4);
    create.mutable_spec()->set_alpha(8);
    create.mutable_spec()->set_train_attn(true);
    all.push_back(post_call<rpc::CreateAdapter>(*loop_, std::move(create)));
    v1::SaveStateRequest save;
    save.set_adapter_id(std::to_string(i));
    save.set_directory((directory_ / ("save" + std::to_string(i))).string());
    save.set_base_model("m");
    all.push_back(post_call<rpc::SaveState>(*loop_, std::move(save)));
  }
  // The file thread hangs.
  while (loop_->run_engine_step() || loop_->run_page_step()) {
  }
  for (size_t i = 0; i < all.size(); i += 2) EXPECT_TRUE(is_ready(all[i])) << "new adapters do not wait for it";
  EXPECT_EQ(engine_.exports, 8);
  auto other = post({.queue = "other"});
  run_engine();
  EXPECT_TRUE(is_ready(other)) << "only saves wait";
  v1::RemoveAdapterRequest remove;
  remove.set_adapter_id(std::to_string(kAdapters - 1));
  all.push_back(post_call<rpc::RemoveAdapter>(*loop_, std::move(remove)));
  run_all();
  for (auto& one : all) {
    ASSERT_TRUE(is_ready(one));
    const Status status = one.get();
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  EXPECT_EQ(engine_.exports, kAdapters);
}

TEST_F(EngineLoopTest, ACopyFailsThenTheNextSaveHasItsPlace) {
  start(0, false);
  int copies = 0;
  std::vector<std::future<Status>> all;
  const auto save = [&](int number, bool fails) {
    all.push_back(post({.queue = "save " + std::to_string(number),
                        .file = [] {},
                        .saves = true,
                        .before_file =
                            [&copies, fails] {
                              ++copies;
                              return fails ? Status(internal_error("no copy")) : Status();
                            }}));
  };
  for (int i = 0; i < 12; ++i) save(i, i >= 8 && i < 11);
  run_engine();
  EXPECT_EQ(copies, 8);
  ASSERT_TRUE(loop_->run_file_step());
  run_engine();
  EXPECT_EQ(copies, 12);
  run_all();
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(is_ready(all[i])) << i;
    EXPECT_EQ(all[i].get().ok(), i < 8 || i == 11) << i;
  }
}

TEST_F(EngineLoopTest, ACheckpointDirectoryHangsThenAdaptersComeBackFromTheirPages) {
  start(60);  // room for one adapter
  create("a");
  create("b");  // "a" is in its page now
  const std::shared_future<void> go_on = go_on_.get_future().share();
  std::promise<void> begun;
  auto hangs = post({.queue = "save", .file = [go_on, &begun] {
                       begun.set_value();
                       go_on.wait();
                     }});
  begun.get_future().wait();
  for (const char* name : {"a", "b"}) EXPECT_TRUE(post({.queue = name, .needs_adapter = true}).get().ok()) << name;
  go_on_.set_value();
  EXPECT_TRUE(hangs.get().ok());
}

TEST_F(EngineLoopTest, AnAdapterWaitsForRoomThenItsWayBackBeginsWhenItIsAskedFor) {
  telemetry::WithCollector collector;
  start(60, false);                                          // room for one adapter
  for (const char* name : {"a", "b"}) create_adapter(name);  // "a" is in its page now
  auto holds = post({.queue = "b", .needs_adapter = true, .file = [] {}});
  auto needs = post({.queue = "a", .needs_adapter = true});
  run_engine();
  clock_.advance(5 * kSecond);
  run_all();  // "b" makes room, and then "a" is read
  ASSERT_TRUE(is_ready(holds) && is_ready(needs));
  ASSERT_TRUE(collector.flush());
  const auto in = collector.span("adapter.page_in");
  ASSERT_TRUE(in);
  uint64_t made_room = 0;
  for (const auto& span : collector.receiver.spans()) {
    if (span.name == "adapter.page_out") made_room = std::max(made_room, span.start);
  }
  EXPECT_EQ(made_room - in->start, static_cast<uint64_t>(5 * kSecond));
}

TEST_F(EngineLoopTest, MemoryRunsOutInAFileThenOnlyThatOperationFails) {
  start();
  const auto failed = post({.queue = "a", .file = [] { throw std::bad_alloc(); }}).get();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason, "out_of_memory");
  EXPECT_FALSE(is_user_error(failed.error().code));
  EXPECT_TRUE(post({.queue = "a", .file = [] {}}).get().ok());
}

TEST_F(EngineLoopTest, MemoryRunsOutAfterAFileThenTheEngineLearnsOfItsEndAllTheSame) {
  start();
  for (int i = 0; i < 4; ++i) {
    // The next allocation of the file thread is that of its message.
    EXPECT_TRUE(post({.queue = "a", .file = [] { FailingAllocations::start(0); }}).get().ok());
  }
}

TEST_F(EngineLoopTest, MemoryRunsOutForTheNewsThatAnAdapterIsLostThenTheNextCallHearsIt) {
  start(60, false);  // room for one adapter
  const std::string name = "an adapter with a name that needs memory";
  create_adapter(name);
  create_adapter("b");  // the other one is in its page now
  engine_.before_create = [](const engine::AdapterId&) { return Status(data_loss("damaged")); };
  const auto call = [&](bool has_memory) {
    auto needs = post({.queue = name, .needs_adapter = true});
    run_engine();
    while (loop_->run_page_step()) {
    }
    if (!has_memory) FailingAllocations::start(0, FailingAllocations::Which::kAllAfter);
    run_engine();
    FailingAllocations::stop();
    EXPECT_TRUE(is_ready(needs));
    return needs.get();
  };
  const Status unknown = call(false);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(unknown.error().reason, "memory");
  const Status lost = call(true);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kDataLoss);
  EXPECT_EQ(lost.error().reason, "adapter_page_lost");
}

}  // namespace
}  // namespace tuft::worker
