// A fixture with a supervisor of the worker in test_worker.cc.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "actor/supervisor.h"
#include "base/bounded_queue.h"
#include "base/testing/temp_dir.h"

namespace tuft::actor {

namespace v1 = worker::v1;
using SampleResult = Result<v1::SampleResponse>;

// A long limit, because a busy machine or a sanitizer makes a worker slow. ctest ends a test after 120 seconds.
inline constexpr auto kPatience = std::chrono::seconds(90);

class SupervisorTest : public ::testing::Test {
 protected:
  void TearDown() override { actor_.reset(); }

  // Returns a sample that never ends by itself, in the first life of the worker.
  std::future<SampleResult> hang() {
    CallOptions options;
    options.incarnation = 1;
    return sample("hang", options);
  }
  WorkerSpec spec(std::vector<std::string> arguments = {}) {
    WorkerSpec result;
    result.base_model = "tiny";
    result.executable = TUFT_TEST_WORKER;
    result.arguments = std::move(arguments);
    result.socket_directory = directory_.path();
    result.restart_delay = kMillisecond;
    result.start_timeout = 20 * kSecond;
    return result;
  }
  void start(WorkerSpec what) {
    actor_ = make_supervised_actor(std::move(what));
    actor_->on_ready([this](uint64_t incarnation) { EXPECT_TRUE(ready_.try_push(uint64_t{incarnation})); });
    const Status started = actor_->start();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  void start_ready() {
    start(spec());
    const Status ready = actor_->wait_ready(20 * kSecond);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    EXPECT_EQ(ready_.pop(), 1U);
  }
  std::future<SampleResult> sample(const std::string& what, const CallOptions& options = {}) {
    auto promise = std::make_shared<std::promise<SampleResult>>();
    v1::SampleRequest request;
    request.set_sampler_id(what);
    actor_->sample(request, options, [promise](SampleResult result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  static SampleResult get(std::future<SampleResult> future) {
    if (future.wait_for(kPatience) != std::future_status::ready) return internal_error("no answer in time");
    return future.get();
  }
  pid_t pid() {
    std::promise<int64_t> promise;
    actor_->describe({}, {}, [&](auto result) { promise.set_value(result.ok() ? result->pid() : 0); });
    return static_cast<pid_t>(promise.get_future().get());
  }

  TempDir directory_;
  BoundedQueue<uint64_t> ready_{16};
  std::unique_ptr<SupervisedActor> actor_;
};

}  // namespace tuft::actor
