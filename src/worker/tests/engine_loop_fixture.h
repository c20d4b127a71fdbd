// An engine loop over a fake engine, and operations of our own.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/tests/fake_engine.h"
#include "worker/engine_loop.h"

namespace tuft::worker {

using engine::testing::FakeEngine;

// What an operation does and how it ended.
struct Script {
  std::string queue;
  std::string tenant = {};
  bool needs_adapter = false;
  bool ends_queue = false;
  std::function<void(EngineContext&)> run = {};
  std::function<void()> file = {};  // empty: it uses no file
  bool loads = false;
  bool makes = false;
  std::function<void()> taken = {};  // what was in the file
  bool saves = false;
  std::function<Status()> before_file = {};
};

class Scripted final : public Operation {
 public:
  Scripted(Script script, std::promise<Status> ended) : script_(std::move(script)), ended_(std::move(ended)) {}

  const std::string& queue() const override { return script_.queue; }
  std::string tenant() const override { return script_.tenant; }
  bool needs_adapter() const override { return script_.needs_adapter; }
  bool ends_queue() const override { return script_.ends_queue; }
  bool loads() const override { return script_.loads; }
  bool makes() const override { return script_.makes; }
  bool saves() const override { return script_.saves; }
  Status before_file(EngineContext&) override { return script_.before_file ? script_.before_file() : Status(); }
  Progress advance(EngineContext& context) override {
    if (script_.run) std::exchange(script_.run, {})(context);
    if (script_.file && !file_done_) {
      file_done_ = true;
      return Progress::kFile;
    }
    if (script_.taken) script_.taken();
    ended_.set_value(status_);
    return Progress::kDone;
  }
  void run_file() override { script_.file(); }
  void file_failed(const Error& error) override { status_ = error; }
  void fail(const Error& error) override { ended_.set_value(copy_of(error)); }

 private:
  Script script_;
  std::promise<Status> ended_;
  bool file_done_ = false;
  Status status_;
};

class EngineLoopTest : public ::testing::Test {
 protected:
  void start(int64_t adapter_bytes = 0, bool threads = true) {
    EngineLoopOptions options;
    options.threads = threads;
    options.base_model = "m";
    options.pager = {adapter_bytes, directory_ / "pages", 0, threads ? 0 : adapter_bytes};
    options.sampler.tokens_max = 64;
    options.trainer.tokens_max = 64;
    const Clock& clock = threads ? system_clock() : clock_;
    loop_ = std::make_unique<EngineLoop>(engine_, options, engine::TokenBytes{}, clock);
  }
  // Runs the engine thread's steps until there are none.
  void run_engine() {
    while (loop_->run_engine_step()) {
    }
  }
  // Runs the steps of all threads until there are none.
  void run_all() {
    while (loop_->run_engine_step() || loop_->run_page_step() || loop_->run_file_step()) {
    }
  }
  std::future<Status> post(Script script) {
    std::promise<Status> ended;
    auto future = ended.get_future();
    loop_->post(std::make_unique<Scripted>(std::move(script), std::move(ended)));
    return future;
  }
  std::future<Status> sample() { return post_sample({}, 4); }
  // Of a sampler of create_sampler(), in a loop without threads.
  std::future<Status> sample_from(const std::string& sampler, const std::string& tenant, int tokens = 4) {
    engine::SampleRequest request;
    request.adapter = engine::AdapterId(sampler);
    request.scope = tenant;
    return post_sample(std::move(request), tokens);
  }
  std::future<Status> post_sample(engine::SampleRequest request, int tokens) {
    const std::string sampler = request.adapter ? request.adapter->str() : "";
    request.prompt = {1, 2, 3};
    request.params.max_tokens = tokens;
    auto ended = std::make_shared<std::promise<Status>>();
    auto future = ended->get_future();
    loop_->post_sample(loop_->next_ticket(), std::move(request),
                       [this, ended, sampler](const Result<engine::SampleResult>& result) {
                         if (!sampler.empty()) samples_ended_.push_back(sampler);
                         ended->set_value(result.ok() ? Status() : Status(copy_of(result.error())));
                       });
    return future;
  }
  static bool is_ready(const std::future<Status>& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  // Runs the steps of all threads until there are none. Expects that the samples have succeeded then.
  void expect_all_end(std::vector<std::future<Status>>& samples) {
    run_all();
    for (auto& sample : samples) {
      ASSERT_TRUE(is_ready(sample));
      EXPECT_TRUE(sample.get().ok());
    }
  }
  void create(const std::string& adapter) {
    const auto run = [adapter](EngineContext& context) {
      EXPECT_TRUE(
          context.adapters.create(engine::AdapterId(adapter), engine::detached({}), AdapterKind::kTraining, "").ok());
    };
    EXPECT_TRUE(post({.queue = adapter, .run = run}).get().ok());
  }
  // In a loop without threads: creates an adapter, and posts a forward_backward of it that must succeed.
  void create_training(const std::string& id) {
    const engine::AdapterId adapter = training_adapter(id);
    auto created =
        post({.queue = adapter.str(), .run = [adapter](EngineContext& context) {
                EXPECT_TRUE(context.adapters.create(adapter, engine::detached({}), AdapterKind::kTraining, "").ok());
              }});
    run_engine();
    EXPECT_TRUE(created.get().ok());
  }
  void post_training(const std::string& id) {
    engine::TrainRequest request;
    request.adapter = training_adapter(id);
    request.loss_fn = "cross_entropy";
    engine::Datum& datum = request.data.emplace_back();
    datum.tokens = {3};
    datum.loss_inputs["target_tokens"] = {{1}, std::vector<int64_t>{4}};
    auto message = std::make_shared<v1::ForwardBackwardRequest>();
    message->set_adapter_id(id);
    const auto reply = [message](const auto& result) { EXPECT_TRUE(result.ok()); };
    loop_->post(make_forward_backward({*message, {}, reply}, std::move(request)));
  }
  // In a loop without threads. In the fake engine a sampler takes 20 bytes, and an adapter in training 60.
  void create_sampler(const std::string& name, const std::string& tenant) {
    create_kind(name, AdapterKind::kSampler, tenant);
  }
  void create_adapter(const std::string& name) { create_kind(name, AdapterKind::kTraining, ""); }
  void create_kind(const std::string& name, AdapterKind kind, const std::string& tenant) {
    const auto run = [name, kind, tenant](EngineContext& context) {
      EXPECT_TRUE(context.adapters.create(engine::AdapterId(name), engine::detached({}), kind, tenant).ok()) << name;
    };
    auto created = post({.queue = "create", .run = run});
    run_all();
    EXPECT_TRUE(created.get().ok());
  }

  std::promise<void> go_on_;
  FakeClock clock_;                         // of a loop without threads
  std::vector<std::string> samples_ended_;  // the samplers of sample_from()
  FakeEngine engine_;
  TempDir directory_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace tuft::worker
