#include "worker/service.h"

#include <cmath>
#include <filesystem>
#include <future>
#include <thread>

#include "engine/lora.h"
#include "engine/loss/loss.h"
#include "loss_graph/testing/graph_builder.h"
#include "worker/tests/service_fixture.h"

namespace tuft::worker {
namespace {

using loss_graph::testing::GraphBuilder;
using loss_graph::testing::Json;
using loss_graph::testing::ref;

TEST_F(ServiceTest, DescribesTheModel) {
  v1::DescribeResponse response;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Describe, v1::DescribeRequest(), &response).status.ok());
  EXPECT_EQ(response.architecture(), "FakeForCausalLM");
  EXPECT_EQ(response.vocab_size(), 16);
  EXPECT_EQ(response.pid(), getpid());
  std::vector<std::string_view> losses = engine::loss_names();
  losses.push_back("custom");
  EXPECT_EQ(std::vector<std::string_view>(response.losses().begin(), response.losses().end()), losses);
}

TEST_F(ServiceTest, TrainsSavesLoadsAndSamples) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  v1::ForwardBackwardResponse trained;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::ForwardBackward, train_request("a", 3), &trained).status.ok());
  EXPECT_EQ(trained.tokens(), 9);
  EXPECT_EQ(decoded(trained).loss_fn_outputs(0).num_datums(), 3);
  EXPECT_GT(decoded(trained).metrics().at("loss:sum"), 0);
  EXPECT_EQ(trained.loss_sum(), decoded(trained).metrics().at("loss:sum"));
  v1::OptimStepResponse stepped;
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_NEAR(stepped.grad_norm(), 9.0, 1e-6);  // the fake engine adds up dloss/dlogprob
  EXPECT_EQ(stepped.step(), 1);

  v1::SaveStateRequest save;
  save.set_adapter_id("a");
  save.set_directory((directory_ / "checkpoint").string());
  save.set_base_model("tiny");
  v1::SaveStateResponse saved;
  const Answer answer = call(&v1::ModelActor::Stub::SaveState, save, &saved);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_GT(saved.size_bytes(), 0);
  EXPECT_EQ(call(&v1::ModelActor::Stub::SaveState, save, &saved).status.error_code(), grpc::StatusCode::ALREADY_EXISTS);

  v1::AddSamplerRequest add;
  add.set_sampler_id("s");
  add.set_directory(save.directory());
  v1::AddSamplerResponse added;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::AddSampler, add, &added).status.ok());
  EXPECT_EQ(call(&v1::ModelActor::Stub::AddSampler, add, &added).status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  v1::SampleResponse first;
  v1::SampleResponse second;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Sample, sample_request("s", 5), &first).status.ok());
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Sample, sample_request("s", 5), &second).status.ok());
  EXPECT_EQ(first.output_tokens(), 5);
  EXPECT_EQ(decoded(first).sequences(0).tokens(), decoded(second).sequences(0).tokens());

  v1::LoadStateRequest load;
  load.set_adapter_id("a");
  load.set_directory(save.directory());
  v1::LoadStateResponse loaded;
  EXPECT_TRUE(call(&v1::ModelActor::Stub::LoadState, load, &loaded).status.ok());
  load.set_directory((directory_ / "nothing").string());
  EXPECT_EQ(call(&v1::ModelActor::Stub::LoadState, load, &loaded).status.error_code(), grpc::StatusCode::NOT_FOUND);
  load.set_directory("relative");
  EXPECT_EQ(call(&v1::ModelActor::Stub::LoadState, load, &loaded).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, CustomLossesAreComputedInThePass) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  v1::ForwardBackwardRequest request = train_request("a", 3);
  request.mutable_request()->set_loss_fn("custom");
  const GraphBuilder graph = GraphBuilder()
                                 .call("total", ".sum", Json::array({ref("logprobs")}))
                                 .call("loss", "operator.mul", Json::array({ref("total"), -2.0}))
                                 .output("loss", {{"custom/total:mean", ref("total")}});
  request.mutable_custom_loss()->set_graph(graph.text());
  v1::CustomLossInput& input = *request.mutable_custom_loss()->add_inputs();
  input.set_name("logprobs");
  input.set_rank(1);
  v1::ForwardBackwardResponse trained;
  const Answer answer = call(&v1::ModelActor::Stub::ForwardBackward, request, &trained);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const auto output = decoded(trained);
  EXPECT_NEAR(output.metrics().at("loss:sum"), -6 * output.metrics().at("custom/total:mean"), 1e-5);
  v1::OptimStepResponse stepped;
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_NEAR(stepped.grad_norm(), 18.0, 1e-6);  // the fake engine adds up dloss/dlogprob

  input.set_rank(2);
  const Answer refused = call(&v1::ModelActor::Stub::ForwardBackward, request, &trained);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.reason, "custom_loss_input");
  request.mutable_custom_loss()->set_graph("{");
  EXPECT_EQ(call(&v1::ModelActor::Stub::ForwardBackward, request, &trained).reason, "custom_loss_invalid");
  request.clear_custom_loss();
  EXPECT_EQ(call(&v1::ModelActor::Stub::ForwardBackward, request, &trained).reason, "unknown_loss");
}

TEST_F(ServiceTest, ErrorsNameTheirReason) {
  EXPECT_EQ(create_adapter("a", 9).reason, "lora_rank_out_of_range");
  EXPECT_EQ(create_adapter("").status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::ForwardBackwardResponse trained;
  const Answer missing = call(&v1::ModelActor::Stub::ForwardBackward, train_request("nobody", 1), &trained);
  EXPECT_EQ(missing.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(missing.reason, "adapter_not_loaded");
  v1::SampleResponse sampled;
  EXPECT_EQ(call(&v1::ModelActor::Stub::Sample, sample_request("nobody", 1), &sampled).reason, "sampler_not_loaded");
  ASSERT_TRUE(create_adapter("a").status.ok());
  v1::OptimStepResponse stepped;
  const Answer optim = optim_step("a", &stepped, std::nan(""));
  EXPECT_NE(optim.status.error_message().find("adam_params.learning_rate"), std::string::npos);
}

TEST_F(ServiceTest, SamplingGoesOnBetweenThePassesOfALongRequest) {
  EngineLoopOptions options;
  options.share_debt_max = 1;  // so that training does not catch up on the time at the gate
  start(options);
  ASSERT_TRUE(create_adapter("a").status.ok());
  std::atomic<int> passes{0};
  std::atomic<int> passes_at_last_step{-1};
  gate_.close();
  auto arrived = gate_.arrival();
  on_engine([&] {
    engine_.before_forward = [&](const engine::Pack&) { return ++passes, Status(); };
    engine_.before_step = [&](auto) {
      gate_.pass();
      passes_at_last_step = passes.load();
      return Status();
    };
  });
  auto sampled = std::async(std::launch::async, [&] {
    v1::SampleResponse response;
    return call(&v1::ModelActor::Stub::Sample, sample_request("", 5), &response).status.ok();
  });
  arrived.wait();
  // The engine thread waits in the first sampling step; sixty passes are queued behind it.
  auto trained = std::async(std::launch::async, [&] {
    v1::ForwardBackwardResponse response;
    return call(&v1::ModelActor::Stub::ForwardBackward, train_request("a", 60), &response).status.ok();
  });
  gate_.open();
  EXPECT_TRUE(sampled.get());
  EXPECT_TRUE(trained.get());
  EXPECT_EQ(passes, 60);
  EXPECT_LT(passes_at_last_step, 10);
}

TEST_F(ServiceTest, ACancelledSampleIsRemovedFromTheEngine) {
  gate_.close();
  auto arrived = gate_.arrival();
  on_engine([&] { engine_.before_step = [&](auto) { return gate_.pass(), Status(); }; });
  grpc::ClientContext context;
  auto sampled = std::async(std::launch::async, [&] {
    v1::SampleResponse response;
    return stub_->Sample(&context, sample_request("", 60), &response);
  });
  arrived.wait();
  context.TryCancel();
  EXPECT_EQ(sampled.get().error_code(), grpc::StatusCode::CANCELLED);
  gate_.open();
  // The engine has dropped the first sample when it answers the next one.
  v1::SampleResponse response;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Sample, sample_request("", 50), &response).status.ok());
  loop_->stop();
  EXPECT_EQ(engine_.open_sequences(), 0U);
}

TEST_F(ServiceTest, RemovingASamplerEndsItsSamples) {
  const auto state = engine::make_adapter(engine_.model(), {.rank = 2, .alpha = 4});
  gate_.close();
  auto arrived = gate_.arrival();
  on_engine([&] {
    ASSERT_TRUE(engine_.adapters().create(sampler_adapter("s"), state).ok());
    engine_.before_step = [&](auto) { return gate_.pass(), Status(); };
  });
  auto sampled = std::async(std::launch::async, [&] {
    v1::SampleResponse response;
    return call(&v1::ModelActor::Stub::Sample, sample_request("s", 60), &response);
  });
  arrived.wait();
  auto removed = std::async(std::launch::async, [&] {
    v1::RemoveSamplerRequest request;
    request.set_sampler_id("s");
    v1::RemoveSamplerResponse response;
    return call(&v1::ModelActor::Stub::RemoveSampler, request, &response);
  });
  gate_.open();
  EXPECT_TRUE(removed.get().status.ok());
  const Answer answer = sampled.get();
  // The sample was either cut short or finished before the removal.
  EXPECT_TRUE(answer.status.ok() || answer.reason == "sampler_removed") << answer.status.error_message();
}

TEST_F(ServiceTest, AFullInboxRefusesCalls) {
  EngineLoopOptions options;
  options.operations_max = 1;
  stop();
  gate_.close();
  auto arrived = gate_.arrival();
  engine_.before_step = [&](auto) { return gate_.pass(), Status(); };
  start(options);
  auto sampled = std::async(std::launch::async, [&] {
    v1::SampleResponse response;
    return call(&v1::ModelActor::Stub::Sample, sample_request("", 3), &response).status.ok();
  });
  arrived.wait();
  EXPECT_EQ(create_adapter("a").reason, "worker_queue_full");
  gate_.open();
  EXPECT_TRUE(sampled.get());
}

TEST_F(ServiceTest, AFailingPassFailsItsRequestAndTheNextWorks) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  on_engine([&] { engine_.before_forward = [](const engine::Pack&) { return Status(internal_error("broken")); }; });
  v1::ForwardBackwardResponse response;
  EXPECT_EQ(call(&v1::ModelActor::Stub::ForwardBackward, train_request("a", 1), &response).status.error_code(),
            grpc::StatusCode::INTERNAL);
  on_engine([&] { engine_.before_forward = {}; });
  EXPECT_TRUE(call(&v1::ModelActor::Stub::ForwardBackward, train_request("a", 1), &response).status.ok());
}

TEST_F(ServiceTest, StoppingAnswersRunningSamples) {
  gate_.close();
  auto arrived = gate_.arrival();
  on_engine([&] { engine_.before_step = [&](auto) { return gate_.pass(), Status(); }; });
  auto sampled = std::async(std::launch::async, [&] {
    v1::SampleResponse response;
    return call(&v1::ModelActor::Stub::Sample, sample_request("", 60), &response);
  });
  arrived.wait();
  auto stopped = std::async(std::launch::async, [&] { loop_->stop(); });
  gate_.open();
  stopped.get();
  const Answer answer = sampled.get();
  EXPECT_TRUE(answer.status.ok() || answer.reason == "worker_stopping") << answer.status.error_message();
}

// An operation that asks for the file thread only after the loop has stopped taking calls.
class FileWhileStopping final : public Operation {
 public:
  FileWhileStopping(EngineLoop& loop, std::promise<void>& begun, std::promise<Error>& answered)
      : loop_(loop), begun_(begun), answered_(answered) {}

  const std::string& queue() const override { return queue_; }
  Progress advance(EngineContext&) override {
    begun_.set_value();
    const auto reason = std::make_shared<std::string>();  // also written by stop(), for samples that were accepted
    while (*reason != "worker_stopping") {
      loop_.post_sample(loop_.next_ticket(), {},
                        [reason](const Result<engine::SampleResult>& result) { *reason = result.error().reason; });
      std::this_thread::yield();
    }
    return Progress::kFile;
  }
  void file_failed(const Error&) override {}
  void fail(const Error& error) override { answered_.set_value(error); }

 private:
  EngineLoop& loop_;
  std::promise<void>& begun_;
  std::promise<Error>& answered_;
  const std::string queue_ = "adapter";
};

TEST_F(ServiceTest, StoppingAnswersAnOperationThatWaitsForFiles) {
  std::promise<void> begun;
  std::promise<Error> answered;
  loop_->post(std::make_unique<FileWhileStopping>(*loop_, begun, answered));
  begun.get_future().wait();
  loop_->stop();
  EXPECT_EQ(answered.get_future().get().reason, "worker_stopping");
}

TEST_F(ServiceTest, AStreamGivesEachTokenOnceAndThenTheAnswer) {
  for (int round = 0; round < 50; ++round) {
    grpc::ClientContext context;
    const auto reader = stub_->StreamSample(&context, sample_request("", 8));
    std::string streamed;
    v1::SampleDelta delta;
    v1::SampleResponse answer;
    while (reader->Read(&delta)) {
      ASSERT_TRUE(answer.response().empty()) << "something came after the answer";
      for (const v1::SampleTokens& fresh : delta.new_tokens()) streamed += fresh.tokens();
      if (delta.has_answer()) answer = delta.answer();
    }
    const grpc::Status status = reader->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(answer.output_tokens(), 8);
    EXPECT_EQ(streamed, decoded(answer).sequences(0).tokens());
  }
}

TEST_F(ServiceTest, AStreamThatFailsSaysWhy) {
  on_engine([&] { engine_.before_step = [](auto) { return Status(internal_error("broken")); }; });
  grpc::ClientContext context;
  const auto reader = stub_->StreamSample(&context, sample_request("", 8));
  v1::SampleDelta delta;
  while (reader->Read(&delta)) EXPECT_FALSE(delta.has_answer());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INTERNAL);
}

}  // namespace
}  // namespace tuft::worker
