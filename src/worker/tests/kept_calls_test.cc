// Tests of the calls that a worker remembers for a server that comes back.
#include "worker/kept_calls.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rpc/methods.h"

namespace tuft::worker {
namespace {

v1::CallIds ids_of(const std::string& request, const std::string& tenant = "alice", bool resumes = false) {
  v1::CallIds ids;
  ids.set_request_id(request);
  ids.set_tenant(tenant);
  ids.set_resumes(resumes);
  return ids;
}

class KeptCallsTest : public ::testing::Test {
 protected:
  // The worker's side of one call, and what its caller got.
  template <typename Method>
  struct Made {
    std::optional<Reply<typename Method::Response>> runs;
    std::shared_ptr<std::vector<Result<typename Method::Response>>> got =
        std::make_shared<std::vector<Result<typename Method::Response>>>();

    void answer(typename Method::Response response = {}) { (*runs)(std::move(response)); }
  };
  template <typename Method>
  Made<Method> make(const std::string& adapter, const v1::CallIds& ids) {
    Made<Method> made;
    made.runs =
        calls_.take_in<Method>(adapter, ids, [got = made.got](auto result) { got->push_back(std::move(result)); });
    return made;
  }
  void create(const std::string& adapter, const std::string& request) {
    make<rpc::CreateAdapter>(adapter, ids_of(request)).answer();
  }
  // Makes and answers a pass whose answer has so many bytes.
  void pass(const std::string& adapter, const std::string& request, size_t bytes = 1,
            const std::string& tenant = "alice") {
    v1::ForwardBackwardResponse response;
    response.set_output(std::string(bytes, 'x'));
    make<rpc::ForwardBackward>(adapter, ids_of(request, tenant)).answer(std::move(response));
  }
  v1::HeldAdapter held(const std::string& adapter) {
    const v1::ListHoldingsResponse list = calls_.list();
    for (const v1::HeldAdapter& each : list.adapters()) {
      if (each.adapter_id() == adapter) return each;
    }
    return {};
  }
  std::vector<std::string> requests(const std::string& adapter) {
    std::vector<std::string> found;
    const v1::HeldAdapter all = held(adapter);
    for (const v1::HeldCall& call : all.calls()) found.push_back(call.ids().request_id());
    return found;
  }

  KeptCalls calls_{1000};
};

TEST_F(KeptCallsTest, ACallThatComesAgainGetsTheFirstAnswer) {
  create("a", "create");
  auto first = make<rpc::OptimStep>("a", ids_of("step"));
  auto again = make<rpc::OptimStep>("a", ids_of("step"));
  EXPECT_FALSE(again.runs) << "it runs already";
  v1::OptimStepResponse response;
  response.set_step(7);
  first.answer(response);
  auto late = make<rpc::OptimStep>("a", ids_of("step", "alice", /*resumes=*/true));
  EXPECT_FALSE(late.runs);
  for (const auto& made : {first, again, late}) {
    ASSERT_EQ(made.got->size(), 1U);
    EXPECT_EQ(made.got->front()->step(), 7);
  }
}

TEST_F(KeptCallsTest, AnErrorIsKeptLikeAnAnswer) {
  create("a", "create");
  auto first = make<rpc::OptimStep>("a", ids_of("step"));
  (*first.runs)(invalid_argument("no", "why"));
  auto again = make<rpc::OptimStep>("a", ids_of("step"));
  ASSERT_EQ(again.got->size(), 1U);
  EXPECT_EQ(again.got->front().error().reason, "why");
}

TEST_F(KeptCallsTest, ACallThatNeverCameIsNotRunWhenItIsResumed) {
  create("a", "create");
  auto resumed = make<rpc::OptimStep>("a", ids_of("step", "alice", /*resumes=*/true));
  EXPECT_FALSE(resumed.runs);
  ASSERT_EQ(resumed.got->size(), 1U);
  EXPECT_EQ(resumed.got->front().error().reason, "not_begun");
  EXPECT_EQ(requests("a").back(), "step") << "its server knows it now";
  auto late = make<rpc::OptimStep>("a", ids_of("step"));
  EXPECT_FALSE(late.runs) << "it was reported failed";
  make<rpc::OptimStep>("other", ids_of("step", "alice", /*resumes=*/true));
  EXPECT_EQ(calls_.list().adapters_size(), 1) << "an adapter that is not there leaves nothing";
}

TEST_F(KeptCallsTest, ListsWhatItHoldsInOrder) {
  create("a", "create");
  pass("a", "1");
  pass("a", "2");
  auto running = make<rpc::OptimStep>("a", ids_of("3"));
  EXPECT_EQ(requests("a"), (std::vector<std::string>{"create", "1", "2", "3"}));
  EXPECT_EQ(held("a").before(), "");
  EXPECT_EQ(calls_.adapters(), 1U);
  auto removed = make<rpc::RemoveAdapter>("a", ids_of("remove"));
  removed.answer();
  EXPECT_EQ(removed.got->size(), 1U);
  EXPECT_EQ(calls_.list().adapters_size(), 0);
}

TEST_F(KeptCallsTest, AnAdapterThatCouldNotBeMadeIsNotHeld) {
  auto made = make<rpc::CreateAdapter>("a", ids_of("create"));
  (*made.runs)(invalid_argument("no"));
  EXPECT_EQ(made.got->size(), 1U);
  EXPECT_EQ(calls_.list().adapters_size(), 0);
}

TEST_F(KeptCallsTest, ACallWithoutARequestGivesTheAdapterAnotherHistory) {
  create("a", "create");
  pass("a", "1");
  auto load = make<rpc::LoadState>("a", {});
  ASSERT_TRUE(load.runs);
  load.answer();
  EXPECT_TRUE(requests("a").empty());
  EXPECT_EQ(held("a").before(), "");
}

TEST_F(KeptCallsTest, TheNewestCallsOfAnAdapterAreKeptAndItSaysWhatCameBefore) {
  create("a", "create");
  for (size_t i = 0; i < KeptCalls::kCallsOfAdapter + 2; ++i) pass("a", std::to_string(i));
  EXPECT_EQ(requests("a").size(), KeptCalls::kCallsOfAdapter);
  EXPECT_EQ(held("a").before(), "1");
  EXPECT_EQ(requests("a").front(), "2");
}

TEST_F(KeptCallsTest, TheTenantWithTheMostBytesLosesItsOldestAnswers) {
  create("small", "create");
  create("large", "create");
  pass("small", "s", 100, "alice");
  for (int i = 0; i < 20; ++i) pass("large", std::to_string(i), 100, "bob");
  EXPECT_EQ(requests("small"), (std::vector<std::string>{"create", "s"}));
  EXPECT_EQ(requests("large").back(), "19");
  EXPECT_LT(requests("large").size(), 10U);
  EXPECT_EQ(std::stoi(held("large").before()) + 1, std::stoi(requests("large").front()));
}

TEST_F(KeptCallsTest, AnAnswerLargerThanTheLimitIsDeliveredAndForgotten) {
  create("a", "create");
  v1::ForwardBackwardResponse response;
  response.set_output(std::string(2000, 'x'));
  auto large = make<rpc::ForwardBackward>("a", ids_of("large"));
  large.answer(response);
  ASSERT_EQ(large.got->size(), 1U);
  EXPECT_EQ(large.got->front()->output().size(), 2000U);
  EXPECT_EQ(held("a").before(), "large");
}

TEST_F(KeptCallsTest, ListsSamplers) {
  calls_.take_in_sampler<rpc::AddSampler>("s1", [](const auto&) {})(v1::AddSamplerResponse());
  calls_.take_in_sampler<rpc::AddSampler>("s2", [](const auto&) {})(v1::AddSamplerResponse());
  calls_.take_in_sampler<rpc::AddSampler>("bad", [](const auto&) {})(invalid_argument("no"));
  calls_.take_in_sampler<rpc::RemoveSampler>("s1", [](const auto&) {})(v1::RemoveSamplerResponse());
  const auto list = calls_.list();
  ASSERT_EQ(list.samplers_size(), 1);
  EXPECT_EQ(list.samplers(0), "s2");
}

}  // namespace
}  // namespace tuft::worker
