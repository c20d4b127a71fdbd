// Tests of published versions, and of adapters that wait in page files because memory is limited.
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "telemetry/testing/recorded_metrics.h"
#include "worker/tests/service_fixture.h"

namespace tuft::worker {
namespace {

// In the fake engine an adapter in training takes 60 bytes, and a sampler 20.
class AdapterPagingTest : public ServiceTest {
 protected:
  void limit_to(int64_t bytes, int64_t pages = 0) {
    EngineLoopOptions options;
    options.pager = {bytes, directory_ / "pages", pages};
    start(options);
  }
  // The bytes of the page of a sampler. That of an adapter in training has four times as many.
  int64_t sampler_page() const {
    engine::LoraSpec spec;
    spec.rank = 4;
    spec.train_attn = true;
    spec.train_mlp = spec.train_unembed = false;
    return engine::parameters_of(engine_.model(), spec) * static_cast<int64_t>(sizeof(float));
  }
  // Further calls are for this tenant.
  void call_for(const std::string& tenant) {
    v1::CallIds ids;
    ids.set_tenant(tenant);
    metadata_ = {{"tuft-ids-bin", ids.SerializeAsString()}};
  }

  Answer publish(const std::string& adapter, const std::string& sampler) {
    v1::PublishAdapterRequest request;
    request.set_adapter_id(adapter);
    request.set_sampler_id(sampler);
    v1::PublishAdapterResponse response;
    return call(&v1::ModelActor::Stub::PublishAdapter, request, &response);
  }
  Answer save_sampler(const std::string& sampler, const std::string& name) {
    v1::SaveSamplerRequest request;
    request.set_sampler_id(sampler);
    request.set_directory(directory_ / name);
    request.set_base_model("tiny");
    v1::SaveSamplerResponse response;
    return call(&v1::ModelActor::Stub::SaveSampler, request, &response);
  }
  Answer add_sampler(const std::string& sampler, const std::string& name) {
    v1::AddSamplerRequest request;
    request.set_sampler_id(sampler);
    request.set_directory(directory_ / name);
    v1::AddSamplerResponse response;
    return call(&v1::ModelActor::Stub::AddSampler, request, &response);
  }
  Answer remove_adapter(const std::string& adapter) {
    v1::RemoveAdapterRequest request;
    request.set_adapter_id(adapter);
    v1::RemoveAdapterResponse response;
    return call(&v1::ModelActor::Stub::RemoveAdapter, request, &response);
  }
  Answer remove_sampler(const std::string& sampler) {
    v1::RemoveSamplerRequest request;
    request.set_sampler_id(sampler);
    v1::RemoveSamplerResponse response;
    return call(&v1::ModelActor::Stub::RemoveSampler, request, &response);
  }
  Answer train(const std::string& adapter) {
    v1::ForwardBackwardResponse response;
    return call(&v1::ModelActor::Stub::ForwardBackward, train_request(adapter, 1), &response);
  }
  Answer sample(const std::string& sampler, std::string* tokens = nullptr) {
    v1::SampleResponse response;
    Answer answer = call(&v1::ModelActor::Stub::Sample, sample_request(sampler, 4), &response);
    if (tokens != nullptr && answer.status.ok()) *tokens = decoded(response).sequences(0).tokens();
    return answer;
  }
  int64_t step_of(const std::string& adapter) {
    v1::OptimStepResponse response;
    EXPECT_TRUE(optim_step(adapter, &response).status.ok());
    return response.step();
  }
};

TEST_F(AdapterPagingTest, PublishedVersionIsSampledFromWithoutAFile) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(publish("a", "v1").status.ok());
  EXPECT_TRUE(sample("v1").status.ok());
  EXPECT_EQ(publish("a", "v1").reason, "adapter_exists");
  EXPECT_EQ(publish("b", "v2").reason, "adapter_not_loaded");
}

TEST_F(AdapterPagingTest, VersionLivesOnWhenItsAdapterGoes) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(publish("a", "v1").status.ok());
  ASSERT_TRUE(remove_adapter("a").status.ok());
  EXPECT_TRUE(sample("v1").status.ok());
  ASSERT_TRUE(save_sampler("v1", "file").status.ok());
  EXPECT_TRUE(add_sampler("again", "file").status.ok());
  EXPECT_TRUE(remove_sampler("v1").status.ok());
  EXPECT_EQ(sample("v1").reason, "sampler_not_loaded");
}

TEST_F(AdapterPagingTest, MoreAdaptersThanFitKeepTheirSteps) {
  limit_to(130);  // two of them
  for (const char* id : {"a", "b", "c", "d", "e"}) ASSERT_TRUE(create_adapter(id).status.ok()) << id;
  for (int64_t step = 1; step <= 3; ++step) {
    for (const char* id : {"a", "b", "c", "d", "e"}) {
      ASSERT_TRUE(train(id).status.ok()) << id;
      EXPECT_EQ(step_of(id), step) << id;
    }
  }
}

TEST_F(AdapterPagingTest, GradientsThatWaitForTheirStepComeBack) {
  limit_to(60);
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(train("a").status.ok());
  ASSERT_TRUE(create_adapter("b").status.ok());  // takes the place of a
  ASSERT_TRUE(train("b").status.ok());
  v1::OptimStepResponse paged;
  v1::OptimStepResponse stayed;
  ASSERT_TRUE(optim_step("b", &stayed).status.ok());
  ASSERT_TRUE(optim_step("a", &paged).status.ok());
  EXPECT_GT(paged.grad_norm(), 0.0);
}

TEST_F(AdapterPagingTest, VersionWithoutRoomStartsInItsPage) {
  limit_to(60);  // the adapter itself takes all of it
  ASSERT_TRUE(create_adapter("a").status.ok());
  for (const char* version : {"v1", "v2", "v3"}) ASSERT_TRUE(publish("a", version).status.ok()) << version;
  for (const char* version : {"v3", "v1", "v2", "v1"}) EXPECT_TRUE(sample(version).status.ok()) << version;
  ASSERT_TRUE(save_sampler("v2", "file").status.ok());
  EXPECT_EQ(step_of("a"), 1);
}

TEST_F(AdapterPagingTest, SamplesAtOnceFromMoreSamplersThanFitAllEnd) {
  limit_to(60);  // three of them
  ASSERT_TRUE(create_adapter("a").status.ok());
  constexpr int kSamplers = 12;
  for (int i = 0; i < kSamplers; ++i) ASSERT_TRUE(publish("a", "v" + std::to_string(i)).status.ok()) << i;
  std::vector<std::future<bool>> ended;
  for (int i = 0; i < 3 * kSamplers; ++i) {
    ended.push_back(
        std::async(std::launch::async, [this, i] { return sample("v" + std::to_string(i % kSamplers)).status.ok(); }));
  }
  for (auto& one : ended) EXPECT_TRUE(one.get());
}

TEST_F(AdapterPagingTest, TenantWithMoreAdaptersThanFitTakesNoneThatAnotherUses) {
  const telemetry::testing::RecordedMetrics metrics;
  const auto hits = [&] {
    return metrics.counter("tuft.lora.cache.hits", {{"base_model", "tiny"}, {"kind", "training"}});
  };
  limit_to(130);  // two that train
  call_for("many");
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(create_adapter(id).status.ok()) << id;
  call_for("one");
  ASSERT_TRUE(create_adapter("x").status.ok()) << "it takes the place of one of the other tenant";
  for (int step = 1; step <= 2; ++step) {
    call_for("many");
    for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(train(id).status.ok()) << id;
    call_for("one");
    const int64_t before = hits();
    ASSERT_TRUE(train("x").status.ok());
    EXPECT_EQ(hits(), before + 1) << "step " << step;
  }
  // There, because a call is answered before its adapter counts as used for the last time.
  on_engine([&] { clock_.advance(11 * kSecond); });
  call_for("many");
  for (const char* id : {"a", "b"}) ASSERT_TRUE(train(id).status.ok()) << id;
  const int64_t before = hits();
  ASSERT_TRUE(train("a").status.ok());
  EXPECT_EQ(hits(), before + 1) << "it has both places, because x is not used";
  call_for("one");
  EXPECT_TRUE(train("x").status.ok());
}

TEST_F(AdapterPagingTest, WhoFindsItsAdapterAndWhoMakesRoomIsCounted) {
  const telemetry::testing::RecordedMetrics metrics;
  const auto count = [&](const char* name, const char* kind) {
    return metrics.counter(name, {{"base_model", "tiny"}, {"kind", kind}});
  };
  limit_to(60);  // one that trains
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(train("a").status.ok());
  EXPECT_EQ(count("tuft.lora.cache.lookups", "training"), 1);
  EXPECT_EQ(count("tuft.lora.cache.hits", "training"), 1);
  ASSERT_TRUE(create_adapter("b").status.ok());  // takes the place of a
  EXPECT_EQ(count("tuft.lora.evictions", "training"), 1);
  ASSERT_TRUE(train("a").status.ok());
  EXPECT_EQ(count("tuft.lora.cache.lookups", "training"), 2);
  EXPECT_EQ(count("tuft.lora.cache.hits", "training"), 1);
  EXPECT_EQ(count("tuft.lora.evictions", "training"), 2);
  EXPECT_EQ(metrics.count("tuft.lora.page.duration", {{"base_model", "tiny"}, {"direction", "in"}, {"result", "ok"}}),
            1U);
  ASSERT_TRUE(publish("a", "v1").status.ok());
  ASSERT_TRUE(sample("v1").status.ok());
  EXPECT_EQ(count("tuft.lora.cache.lookups", "sampler"), 1);
}

TEST_F(AdapterPagingTest, PagedAdaptersAreRemovedWithoutComingBack) {
  limit_to(60);
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(publish("a", "v1").status.ok());
  EXPECT_TRUE(remove_sampler("v1").status.ok());
  EXPECT_EQ(sample("v1").reason, "sampler_not_loaded");
  ASSERT_TRUE(create_adapter("b").status.ok());
  EXPECT_TRUE(remove_adapter("a").status.ok());
  EXPECT_EQ(train("a").reason, "adapter_not_loaded");
}

TEST_F(AdapterPagingTest, NoPlaceForPagesGoesOverTheLimitInsteadOfFailing) {
  std::ofstream(directory_ / "pages") << "a file where the directory should be";
  limit_to(60);
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(create_adapter(id).status.ok()) << id;
    ASSERT_TRUE(train(id).status.ok()) << id;
  }
  for (const char* id : {"a", "b"}) EXPECT_EQ(step_of(id), 1) << id;
}

TEST_F(AdapterPagingTest, NoPlaceForPagesThenNewAdaptersAreRefused) {
  const telemetry::testing::RecordedMetrics metrics;
  limit_to(0);
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(publish("a", "v1").status.ok());
  ASSERT_TRUE(save_sampler("v1", "file").status.ok());
  ASSERT_TRUE(remove_adapter("a").status.ok());
  ASSERT_TRUE(remove_sampler("v1").status.ok());
  std::ofstream(directory_ / "pages") << "a file where the directory should be";
  limit_to(60);
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(create_adapter("b").status.ok());  // takes the place of a, whose page cannot be written
  ASSERT_TRUE(train("a").status.ok());           // it is back, so the failure is known
  EXPECT_EQ(create_adapter("c").reason, "adapter_memory_bytes");
  EXPECT_EQ(publish("a", "v1").reason, "adapter_memory_bytes");
  EXPECT_EQ(add_sampler("v2", "file").reason, "adapter_memory_bytes");
  EXPECT_EQ(metrics.counter("tuft.scheduler.admission.rejections",
                            {{"base_model", "tiny"}, {"reason", "adapter_memory_bytes"}}),
            3);
  EXPECT_GE(
      metrics.count("tuft.lora.page.duration", {{"base_model", "tiny"}, {"direction", "out"}, {"result", "failed"}}),
      1U)
      << "of a, and of b if it made room meanwhile";
  EXPECT_EQ(sample("v1").reason, "sampler_not_loaded") << "nothing is left of it";
  for (const char* id : {"a", "b"}) EXPECT_EQ(step_of(id), 1) << id;
}

TEST_F(AdapterPagingTest, TenantHasAQuarterOfThePages) {
  limit_to(60, 24 * sampler_page());
  call_for("greedy");
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(publish("a", "v1").status.ok());
  ASSERT_TRUE(save_sampler("v1", "file").status.ok());
  EXPECT_EQ(create_adapter("b").reason, "adapter_page_bytes");
  ASSERT_TRUE(publish("a", "v2").status.ok());
  const Answer refused = publish("a", "v3");
  EXPECT_EQ(refused.reason, "adapter_page_bytes");
  EXPECT_EQ(refused.status.error_message(),
            "your adapters of this base model could take " + std::to_string(7 * sampler_page()) +
                " bytes of page files, more than the " + std::to_string(6 * sampler_page()) +
                " bytes that one user may have (adapter_page_bytes); unload models that you do not train any more, or "
                "end sessions that sample");
  EXPECT_EQ(add_sampler("again", "file").reason, "adapter_page_bytes");
  call_for("other");
  ASSERT_TRUE(create_adapter("b").status.ok()) << "another tenant has its own part";
  call_for("greedy");
  EXPECT_TRUE(train("a").status.ok()) << "what is there goes on";
  ASSERT_TRUE(remove_sampler("v1").status.ok());
  EXPECT_TRUE(add_sampler("again", "file").status.ok()) << "what is removed leaves its room";
}

TEST_F(AdapterPagingTest, PagesOfAllTenantsAreLimited) {
  const telemetry::testing::RecordedMetrics metrics;
  limit_to(60, 8 * sampler_page());  // two adapters in training, although each is more than a quarter
  for (const char* tenant : {"t1", "t2"}) {
    call_for(tenant);
    ASSERT_TRUE(create_adapter(tenant).status.ok()) << tenant;
  }
  call_for("t3");
  EXPECT_EQ(create_adapter("t3").reason, "adapter_page_bytes");
  EXPECT_EQ(metrics.counter("tuft.scheduler.admission.rejections",
                            {{"base_model", "tiny"}, {"reason", "adapter_page_bytes"}}),
            1);
  ASSERT_TRUE(remove_adapter("t2").status.ok());
  EXPECT_TRUE(create_adapter("t3").status.ok());
}

}  // namespace
}  // namespace tuft::worker
