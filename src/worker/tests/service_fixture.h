// A worker without a process: an engine loop over a fake engine, the service, and a client.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/tests/fake_engine.h"
#include "tuft/worker/v1/model_actor.grpc.pb.h"
#include "worker/service.h"

namespace tuft::worker {

using engine::testing::FakeEngine;

// The engine thread waits here until the test lets it go on.
class Gate {
 public:
  void close() { promise_ = std::promise<void>(), open_ = promise_.get_future().share(), closed_ = true; }
  void open() { closed_ = false, promise_.set_value(); }
  // Runs on the engine thread.
  void pass() {
    if (!closed_) return;
    arrived_.set_value();
    arrived_ = {};
    open_.wait();
  }
  std::future<void> arrival() { return arrived_.get_future(); }

 private:
  std::atomic<bool> closed_{false};
  std::promise<void> promise_;
  std::shared_future<void> open_;
  std::promise<void> arrived_;
};

inline std::string tokens(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t)};
}

// The messages that the worker passes on as bytes.
inline tinker_public::SampleResponse decoded(const v1::SampleResponse& response) {
  tinker_public::SampleResponse result;
  EXPECT_TRUE(result.ParseFromString(response.response()));
  return result;
}
inline tinker_public::ForwardBackwardOutput decoded(const v1::ForwardBackwardResponse& response) {
  tinker_public::ForwardBackwardOutput result;
  EXPECT_TRUE(result.ParseFromString(response.output()));
  return result;
}

// An operation that runs `work`.
class EngineWork final : public Operation {
 public:
  explicit EngineWork(std::packaged_task<void()> work) : work_(std::move(work)) {}

  const std::string& queue() const override { return queue_; }
  bool needs_adapter() const override { return false; }
  Progress advance(EngineContext&) override {
    work_();
    return Progress::kDone;
  }
  void file_failed(const Error&) override {}
  void fail(const Error&) override {}

 private:
  std::packaged_task<void()> work_;
  const std::string queue_ = "test";
};

// The system's clock, which a test may advance.
class AdvancedClock final : public Clock {
 public:
  Nanos monotonic() const override { return system_clock().monotonic() + by_.load(); }
  Nanos wall() const override { return system_clock().wall() + by_.load(); }
  void advance(Nanos by) { by_ += by; }

 private:
  std::atomic<Nanos> by_{0};
};

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override { stop(); }
  void stop() {
    if (loop_) loop_->stop();
    if (server_) server_->shutdown(0);
    server_.reset();
    loop_.reset();
  }
  void start(EngineLoopOptions options) {
    stop();
    options.base_model = "tiny";
    options.trainer = {.batch_tokens = 4, .tokens_max = 64};
    options.sampler.batch_tokens = 16;
    options.sampler.tokens_max = 64;
    options.limits.rank_max = 8;
    loop_ = std::make_unique<EngineLoop>(engine_, options, engine::TokenBytes{}, clock_);
    auto server = start_server(*loop_, {directory_ / "w.sock", "tiny"});
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    stub_ = v1::ModelActor::NewStub(
        grpc::CreateChannel("unix:" + (directory_ / "w.sock").string(), grpc::InsecureChannelCredentials()));
  }

  // Runs `work` on the engine thread, to which engine_ and what its functions use belong while the worker runs. Calls
  // over gRPC order a test's own writes as well, but in a way that ThreadSanitizer does not see.
  void on_engine(std::function<void()> work) {
    std::packaged_task<void()> task(std::move(work));
    auto done = task.get_future();
    loop_->post(std::make_unique<EngineWork>(std::move(task)));
    done.get();
  }

  struct Answer {
    grpc::Status status;
    std::string reason;
  };
  template <typename Request, typename Response>
  Answer call(grpc::Status (v1::ModelActor::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
              const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    for (const auto& [key, value] : metadata_) context.AddMetadata(key, value);
    Answer answer;
    answer.status = (stub_.get()->*method)(&context, request, response);
    const auto found = context.GetServerTrailingMetadata().find("tuft-reason");
    if (found == context.GetServerTrailingMetadata().end()) return answer;
    answer.reason.assign(found->second.data(), found->second.size());
    return answer;
  }

  Answer create_adapter(const std::string& id, int rank = 4) {
    v1::CreateAdapterRequest request;
    request.set_adapter_id(id);
    request.set_optimizer("adamw");
    request.mutable_spec()->set_rank(rank);
    request.mutable_spec()->set_alpha(8);
    request.mutable_spec()->set_train_attn(true);
    v1::CreateAdapterResponse response;
    Answer answer = call(&v1::ModelActor::Stub::CreateAdapter, request, &response);
    EXPECT_EQ(answer.status.ok(), response.parameters() > 0);
    return answer;
  }
  static v1::ForwardBackwardRequest train_request(const std::string& id, int datums) {
    v1::ForwardBackwardRequest request;
    request.set_adapter_id(id);
    request.mutable_request()->set_loss_fn("cross_entropy");
    for (int i = 0; i < datums; ++i) {
      auto& datum = *request.mutable_request()->add_data();
      datum.add_model_input()->mutable_encoded_text()->set_tokens(tokens({1, 2, 3}));
      auto& target = (*datum.mutable_loss_fn_inputs())["target_tokens"];
      target.set_dtype(tinker_public::DTYPE_INT32);
      target.set_dense(tokens({2, 3, 4}));
    }
    return request;
  }
  Answer optim_step(const std::string& id, v1::OptimStepResponse* response, double learning_rate = 1e-3) {
    v1::OptimStepRequest request;
    request.set_adapter_id(id);
    request.mutable_params()->set_learning_rate(learning_rate);
    request.mutable_params()->set_beta1(0.9);
    request.mutable_params()->set_beta2(0.95);
    return call(&v1::ModelActor::Stub::OptimStep, request, response);
  }
  static v1::SampleRequest sample_request(const std::string& sampler, int max_tokens) {
    v1::SampleRequest request;
    request.set_sampler_id(sampler);
    request.set_prompt_tokens(tokens({1, 2, 3}));
    request.set_num_samples(1);
    request.mutable_params()->set_max_tokens(max_tokens);
    request.mutable_params()->set_seed(5);
    return request;
  }

  std::vector<std::pair<std::string, std::string>> metadata_;  // sent with every call
  Gate gate_;                                                  // must outlive the engine thread that waits at it
  FakeEngine engine_{16};
  TempDir directory_;
  AdvancedClock clock_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<WorkerServer> server_;
  std::unique_ptr<v1::ModelActor::Stub> stub_;
};

}  // namespace tuft::worker
