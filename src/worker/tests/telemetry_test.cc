// The spans, logs and metrics of a worker, as a collector receives them.
#include <algorithm>
#include <cmath>

#include "engine/lora.h"
#include "telemetry/exposition.h"
#include "telemetry/log.h"
#include "telemetry/record/share_keys.h"
#include "telemetry/testing/recorded_metrics.h"
#include "telemetry/tests/collector_fixture.h"
#include "worker/sample_trace.h"
#include "worker/share_keys.h"
#include "worker/tests/service_fixture.h"

namespace tuft::worker {
namespace {

using telemetry::testing::ReceivedSpan;
using telemetry::testing::text_of;

constexpr telemetry::SpanContext kTrace = {.trace_id_high = 7, .trace_id_low = 8, .span_id = 9, .flags = 1};

class WorkerTelemetryTest : public ServiceTest {
 protected:
  void SetUp() override {
    telemetry::init_logging({.level = telemetry::Severity::kDebug, .process = "tiny"});
    v1::CallIds ids;
    ids.set_session_id("session-1");
    ids.set_training_run_id("run-1");
    ids.set_sampling_session_id("sampling-1");
    ids.set_request_id("request-1");
    ids.set_operation_type("operation");
    metadata_ = {{"traceparent", telemetry::to_traceparent(kTrace)}, {"tuft-ids-bin", ids.SerializeAsString()}};
    ServiceTest::SetUp();
  }
  void TearDown() override {
    stop();
    telemetry::init_logging({});
  }

  v1::ForwardBackwardResponse train(const std::string& id, int datums) {
    v1::ForwardBackwardResponse response;
    EXPECT_TRUE(call(&v1::ModelActor::Stub::ForwardBackward, train_request(id, datums), &response).status.ok());
    return response;
  }
  v1::SampleResponse sample(int max_tokens, int num_samples = 1) {
    v1::SampleRequest request = sample_request("", max_tokens);
    request.set_num_samples(num_samples);
    v1::SampleResponse response;
    EXPECT_TRUE(call(&v1::ModelActor::Stub::Sample, request, &response).status.ok());
    return response;
  }
  ReceivedSpan span(const std::string& name) {
    EXPECT_TRUE(collector_.receiver.wait_until([&] { return collector_.span(name).has_value(); })) << name;
    return collector_.span(name).value_or(ReceivedSpan{});
  }
  std::vector<ReceivedSpan> spans_of(const std::string& name) {
    std::vector<ReceivedSpan> found;
    for (auto& span : collector_.receiver.spans()) {
      if (span.name == name) found.push_back(span);
    }
    return found;
  }
  static void expect_share_keys(const telemetry::testing::ReceivedAttributes& attributes) {
    EXPECT_EQ(text_of(attributes, "tuft.session_id"), "session-1");
    EXPECT_EQ(text_of(attributes, "tuft.training_run_id"), "run-1");
    EXPECT_EQ(text_of(attributes, "tuft.sampling_session_id"), "sampling-1");
    EXPECT_EQ(text_of(attributes, "tuft.request_id"), "request-1");
    EXPECT_EQ(text_of(attributes, "tuft.operation_type"), "operation");
    EXPECT_EQ(text_of(attributes, "tuft.base_model"), "tiny");
  }

  // Other work pushes out all share keys that nothing holds.
  static void share_others() {
    for (size_t i = 0; i <= telemetry::internal::kShareKeySetsMax; ++i) telemetry::share({}, {{"other", "key"}});
  }

  telemetry::WithCollector collector_;
};

TEST_F(WorkerTelemetryTest, EverySpanOfATrainingStepCarriesTheShareKeys) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  train("a", 3);
  v1::OptimStepResponse stepped;
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  ASSERT_TRUE(collector_.flush());
  for (const char* name : {"hf_model.create_adapter", "hf_model.forward_backward", "hf_model.optim_step",
                           "engine.forward", "engine.backward"}) {
    const ReceivedSpan received = span(name);
    EXPECT_EQ(received.trace_id, kTrace.trace_id_hex()) << name;
    expect_share_keys(received.attributes);
    EXPECT_EQ(text_of(received.attributes, "tuft.lora_id"), "a") << name;
    EXPECT_EQ(text_of(received.attributes, "tuft.lora_rank"), "4") << name;
  }
  const ReceivedSpan step = span("hf_model.forward_backward");
  EXPECT_EQ(step.parent_span_id, kTrace.span_id_hex());
  EXPECT_EQ(text_of(step.attributes, "tuft.backward"), "true");
  EXPECT_EQ(text_of(step.attributes, "tuft.num_micro_batches"), "3");
  EXPECT_EQ(text_of(step.attributes, "tuft.tokens"), "9");
  const auto passes = spans_of("engine.forward");
  ASSERT_EQ(passes.size(), 3U);
  for (size_t i = 0; i < passes.size(); ++i) {
    EXPECT_EQ(passes[i].parent_span_id, step.span_id);
    EXPECT_EQ(text_of(passes[i].attributes, "tuft.pass"), std::to_string(i));
    EXPECT_EQ(text_of(passes[i].attributes, "tuft.tokens"), "3");
    EXPECT_EQ(text_of(passes[i].attributes, "tuft.adapters"), "1");
  }
}

TEST_F(WorkerTelemetryTest, TheSpanOfAForwardSaysThatItHasNoBackward) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  auto request = train_request("a", 1);
  request.mutable_request()->set_forward_only(true);
  v1::ForwardBackwardResponse response;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::ForwardBackward, request, &response).status.ok());
  EXPECT_EQ(response.backward_seconds(), 0);
  ASSERT_TRUE(collector_.flush());
  EXPECT_EQ(text_of(span("hf_model.forward").attributes, "tuft.backward"), "false");
  EXPECT_TRUE(spans_of("engine.backward").empty());
}

TEST_F(WorkerTelemetryTest, TheReplyHasTheNumbersThatTheControlPlaneCounts) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  const v1::ForwardBackwardResponse trained = train("a", 3);
  EXPECT_EQ(trained.passes(), 3);
  EXPECT_EQ(trained.weight_sum(), 9);
  EXPECT_GT(trained.forward_seconds(), 0);
  EXPECT_GT(trained.backward_seconds(), 0);
  EXPECT_GT(trained.queue_seconds(), 0);
  EXPECT_GE(trained.compute_seconds(), trained.forward_seconds() + trained.backward_seconds());
  v1::OptimStepResponse stepped;
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_GT(stepped.queue_seconds(), 0);
  EXPECT_FALSE(stepped.clipped());
  EXPECT_FALSE(stepped.nonfinite());
}

TEST_F(WorkerTelemetryTest, TheStagesOfASampleLieInTheRowOfTheEngineThread) {
  const v1::SampleResponse response = sample(5, 2);
  ASSERT_TRUE(collector_.flush());
  const ReceivedSpan whole = span("hf_model.sample");
  EXPECT_EQ(whole.parent_span_id, kTrace.span_id_hex());
  expect_share_keys(whole.attributes);
  EXPECT_EQ(text_of(whole.attributes, "tuft.num_samples"), "2");
  EXPECT_EQ(text_of(whole.attributes, "tuft.prompt_tokens"), "3");
  EXPECT_EQ(text_of(whole.attributes, "tuft.output_tokens"), std::to_string(response.output_tokens()));
  EXPECT_EQ(text_of(whole.attributes, "tuft.finish_reasons"), "length");
  EXPECT_EQ(text_of(whole.attributes, "gen_ai.usage.input_tokens"), "3");
  EXPECT_EQ(text_of(whole.attributes, "gen_ai.usage.output_tokens"), std::to_string(response.output_tokens()));
  EXPECT_TRUE(whole.attributes.contains("gen_ai.latency.time_to_first_token"));
  ASSERT_EQ(whole.events.size(), 1U);
  EXPECT_EQ(whole.events[0].name, "first_token");

  const ReceivedSpan prefill = span("PREFILL");
  EXPECT_EQ(prefill.trace_id, kTrace.trace_id_hex());
  uint64_t end = whole.start;
  for (const char* name : {"SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS"}) {
    const ReceivedSpan stage = span(name);
    EXPECT_EQ(stage.parent_span_id, prefill.parent_span_id) << name;
    EXPECT_EQ(stage.start, end) << name;
    EXPECT_GE(stage.end, stage.start) << name;
    end = stage.end;
  }
  EXPECT_LE(end, whole.end);
  EXPECT_EQ(whole.events[0].time, prefill.end);
  const auto all = collector_.receiver.spans();
  const auto row =
      std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.span_id == prefill.parent_span_id; });
  ASSERT_NE(row, all.end());
  EXPECT_EQ(row->parent_span_id, whole.span_id);
  EXPECT_NE(row->name.find("engine"), std::string::npos) << row->name;
}

TEST_F(WorkerTelemetryTest, WhatALongCallRecordsAtItsEndHasTheShareKeys) {
  on_engine([&] {
    engine_.before_create = [](const engine::AdapterId&) {
      share_others();
      telemetry::log_info("test.late", "a record at the end of a long call");
      return Status();
    };
  });
  ASSERT_TRUE(create_adapter("a").status.ok());
  ASSERT_TRUE(collector_.flush());
  ASSERT_TRUE(collector_.receiver.wait_until([&] { return collector_.log("test.late").has_value(); }));
  expect_share_keys(collector_.log("test.late")->attributes);
}

TEST_F(WorkerTelemetryTest, TheStagesOfALongSampleHaveTheShareKeys) {
  Caller caller{.trace = {}, .ids = {}, .arrived = kSecond};
  caller.ids.set_session_id("session-1");
  caller.keys =
      std::make_shared<const telemetry::SharedKeys>(kTrace, telemetry::Attributes(share_keys(caller.ids, "tiny")));
  caller.trace = caller.keys->context();
  share_others();
  engine::SampleResult result;
  result.times = {.arrived = kSecond, .started = 2 * kSecond, .first_token = 3 * kSecond, .ended = 4 * kSecond};
  record_sample(caller, SampleFacts(), "tiny", Result<engine::SampleResult>(result), 5 * kSecond);
  ASSERT_TRUE(collector_.flush());
  for (const char* name : {"hf_model.sample", "SCHEDULE", "PREFILL", "POSTPROCESS"}) {
    EXPECT_EQ(text_of(span(name).attributes, "tuft.session_id"), "session-1") << name;
  }
}

TEST_F(WorkerTelemetryTest, AnswerAndSpanSayThatThePromptWasCached) {
  auto request = sample_request("", 2);
  request.set_prompt_tokens(tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  request.set_cache_scope("somebody");
  v1::SampleResponse response;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Sample, request, &response).status.ok());
  EXPECT_EQ(decoded(response).prompt_cache_hit_tokens(), 0);
  request.set_cache_scope("somebody else");
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Sample, request, &response).status.ok());
  EXPECT_EQ(decoded(response).prompt_cache_hit_tokens(), 0);
  request.set_cache_scope("somebody");
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Sample, request, &response).status.ok());
  EXPECT_EQ(decoded(response).prompt_cache_hit_tokens(), 8);
  ASSERT_TRUE(collector_.flush());
  const auto spans = spans_of("hf_model.sample");
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(text_of(spans[0].attributes, "tuft.cached_tokens"), "0");
  EXPECT_EQ(text_of(spans[2].attributes, "tuft.cached_tokens"), "8");
  ASSERT_EQ(spans[2].events.size(), 2U);
  EXPECT_EQ(spans[2].events[0].name, "cache_hit");
}

TEST_F(WorkerTelemetryTest, TheSpanSaysWhichOptionsASampleHas) {
  v1::SampleRequest request = sample_request("", 2);
  request.set_topk_logprobs(3);
  request.set_prompt_alt_tokens(4);
  request.mutable_params()->mutable_stop_tokens();
  v1::SampleResponse response;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::Sample, request, &response).status.ok());
  EXPECT_EQ(decoded(response).sequences(0).topk_sampled_logprobs().length(), 2U);
  EXPECT_EQ(decoded(response).prompt_alt_tokens().tokens().shape(0), 2);
  ASSERT_TRUE(collector_.flush());
  const ReceivedSpan whole = span("hf_model.sample");
  ASSERT_EQ(whole.events.size(), 2U);
  EXPECT_EQ(whole.events[0].name, "options");
}

TEST_F(WorkerTelemetryTest, TheSpanOfAPreemptedSampleSaysWhen) {
  const v1::SampleResponse response = sample(60, 10);  // 10 x 16 blocks, and there are 100
  EXPECT_GT(response.preemptions(), 0);
  ASSERT_TRUE(collector_.flush());
  const ReceivedSpan whole = span("hf_model.sample");
  EXPECT_EQ(text_of(whole.attributes, "tuft.preemptions"), std::to_string(response.preemptions()));
  int resumed = 0;
  uint64_t preempted_at = 0;
  for (const auto& event : whole.events) {
    if (event.name == "preempted") preempted_at = event.time;
    if (event.name != "resumed") continue;
    ++resumed;
    EXPECT_GE(event.time, preempted_at);
  }
  EXPECT_GT(resumed, 0);
  ASSERT_TRUE(collector_.receiver.wait_until([&] { return collector_.log("scheduler.preempted").has_value(); }));
  EXPECT_EQ(collector_.log("scheduler.preempted")->trace_id, kTrace.trace_id_hex());
}

TEST_F(WorkerTelemetryTest, SpanAndLogOfAFailedOperationSayWhy) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  on_engine([&] { engine_.before_forward = [](const engine::Pack&) { return Status(internal_error("broken")); }; });
  v1::ForwardBackwardResponse response;
  EXPECT_FALSE(call(&v1::ModelActor::Stub::ForwardBackward, train_request("a", 1), &response).status.ok());
  ASSERT_TRUE(collector_.flush());
  const ReceivedSpan failed = span("hf_model.forward_backward");
  EXPECT_TRUE(failed.error);
  EXPECT_EQ(failed.status_message, "broken");
  ASSERT_EQ(failed.events.size(), 1U);
  EXPECT_EQ(failed.events[0].name, "exception");
  EXPECT_TRUE(span("engine.forward").error);
  ASSERT_TRUE(collector_.receiver.wait_until([&] { return collector_.log("forward_backward.failed").has_value(); }));
  const auto log = *collector_.log("forward_backward.failed");
  EXPECT_EQ(log.severity, "ERROR");
  EXPECT_EQ(log.span_id, failed.span_id);
  expect_share_keys(log.attributes);
}

TEST_F(WorkerTelemetryTest, TheSpanOfAFailedSampleSaysWhy) {
  on_engine([&] { engine_.before_step = [](auto) { return Status(internal_error("broken")); }; });
  v1::SampleResponse response;
  EXPECT_FALSE(call(&v1::ModelActor::Stub::Sample, sample_request("", 3), &response).status.ok());
  ASSERT_TRUE(collector_.flush());
  EXPECT_TRUE(span("hf_model.sample").error);
  ASSERT_TRUE(collector_.receiver.wait_until([&] { return collector_.log("sampling.failed").has_value(); }));
}

TEST_F(WorkerTelemetryTest, BeginAndEndOfOperationsAreLoggedWithTheirSpan) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  train("a", 1);
  sample(2);
  ASSERT_TRUE(collector_.flush());
  for (const char* event : {"lora.loaded", "forward_backward.begin", "forward_backward.completed", "sampling.begin",
                            "sampling.completed"}) {
    ASSERT_TRUE(collector_.receiver.wait_until([&] { return collector_.log(event).has_value(); })) << event;
    const auto log = *collector_.log(event);
    EXPECT_EQ(log.trace_id, kTrace.trace_id_hex()) << event;
    expect_share_keys(log.attributes);
  }
  EXPECT_EQ(collector_.log("forward_backward.completed")->span_id, span("hf_model.forward_backward").span_id);
}

TEST_F(WorkerTelemetryTest, PassesLoadsAndQueuesAreCountedByModel) {
  const telemetry::testing::RecordedMetrics metrics;
  const auto with = [](const char* key, const char* value) {
    return telemetry::testing::RecordedMetrics::LabelList{{"base_model", "tiny"}, {key, value}};
  };
  ASSERT_TRUE(create_adapter("a").status.ok());
  train("a", 3);
  EXPECT_EQ(metrics.counter("tuft.scheduler.steps", with("phase", "train")), 3);
  EXPECT_EQ(metrics.sum("tuft.training.micro_batches", {{"base_model", "tiny"}}), 3);
  EXPECT_EQ(metrics.sum("tuft.scheduler.batch.tokens", {{"base_model", "tiny"}}), 9);
  EXPECT_EQ(metrics.sum("tuft.scheduler.batch.requests", with("phase", "train")), 3);
  EXPECT_EQ(metrics.count("tuft.scheduler.step.duration", with("phase", "train")), 3U);
  EXPECT_EQ(metrics.count("tuft.scheduler.queue.duration", with("kind", "train")), 1U);
  EXPECT_EQ(metrics.count("tuft.lora.load.duration", with("source", "new")), 1U);
}

TEST_F(WorkerTelemetryTest, RefusedCallsAreCountedByReason) {
  const telemetry::testing::RecordedMetrics metrics;
  v1::SampleResponse response;
  EXPECT_FALSE(call(&v1::ModelActor::Stub::Sample, sample_request("nobody", 1), &response).status.ok());
  EXPECT_EQ(metrics.counter("tuft.scheduler.admission.rejections",
                            {{"base_model", "tiny"}, {"reason", "sampler_not_loaded"}}),
            1);
}

TEST_F(WorkerTelemetryTest, TheServerCanRenderTheCollectedMetrics) {
  sample(3);
  v1::CollectMetricsResponse response;
  ASSERT_TRUE(call(&v1::ModelActor::Stub::CollectMetrics, v1::CollectMetricsRequest(), &response).status.ok());
  const std::string text =
      telemetry::render_metrics(telemetry::ExpositionFormat::kPrometheusText, {{"tiny", response.snapshot()}});
  EXPECT_NE(text.find("worker=\"tiny\""), std::string::npos);
  EXPECT_NE(text.find("decode_tokens_processed"), std::string::npos);
  EXPECT_NE(text.find("otel_sdk_span_started"), std::string::npos) << "the worker's own telemetry health";
}

TEST_F(WorkerTelemetryTest, ACallWithUnreadableIdsGoesOn) {
  metadata_ = {{"tuft-ids-bin", "\xff\xff\xff"}};
  EXPECT_EQ(sample(2).output_tokens(), 2);
}

TEST_F(WorkerTelemetryTest, AStepOfTheSamplerLinksToTheCallsInIt) {
  sample(5);
  ASSERT_TRUE(collector_.flush());
  const ReceivedSpan step = span("engine.step");
  EXPECT_NE(step.trace_id, kTrace.trace_id_hex());
  ASSERT_EQ(step.links.size(), 1U);
  EXPECT_EQ(step.links[0].trace_id, kTrace.trace_id_hex());
  EXPECT_EQ(step.links[0].span_id, kTrace.span_id_hex());
  EXPECT_EQ(text_of(step.attributes, "tuft.prefill_tokens"), "3");
}

TEST_F(WorkerTelemetryTest, APassThatRunsOutOfMemoryIsCounted) {
  const telemetry::testing::RecordedMetrics metrics;
  ASSERT_TRUE(create_adapter("a").status.ok());
  Error error{ErrorCode::kResourceExhausted, "not enough memory", "memory"};
  on_engine([&] { engine_.before_forward = [&](const engine::Pack&) { return Status(error); }; });
  v1::ForwardBackwardResponse response;
  EXPECT_FALSE(call(&v1::ModelActor::Stub::ForwardBackward, train_request("a", 1), &response).status.ok());
  EXPECT_EQ(metrics.counter("tuft.training.ooms", {{"base_model", "tiny"}}), 1);
  on_engine([&] { error = internal_error("broken"); });
  EXPECT_FALSE(call(&v1::ModelActor::Stub::ForwardBackward, train_request("a", 1), &response).status.ok());
  EXPECT_EQ(metrics.counter("tuft.training.ooms", {{"base_model", "tiny"}}), 1);
}

TEST_F(WorkerTelemetryTest, TheReplySaysThatAStepBrokeTheWeights) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  train("a", 1);
  v1::OptimStepResponse stepped;
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_FALSE(stepped.nonfinite_update());
  on_engine([&] { engine_.breaks_weights = true; });
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_TRUE(stepped.nonfinite_update());
  EXPECT_FALSE(stepped.nonfinite());
}

TEST_F(WorkerTelemetryTest, TheReplySaysThatNoStepWasTaken) {
  ASSERT_TRUE(create_adapter("a").status.ok());
  train("a", 1);
  v1::OptimStepResponse stepped;
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_TRUE(stepped.stepped());
  on_engine([&] { engine_.without_gradient = true; });
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_FALSE(stepped.stepped());
  EXPECT_FALSE(stepped.nonfinite());
  on_engine([&] {
    engine_.without_gradient = false;
    engine_.model_function = [](const auto&, const auto&) { return std::vector<float>(16, std::nanf("")); };
  });
  train("a", 1);
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  EXPECT_FALSE(stepped.stepped());
  EXPECT_TRUE(stepped.nonfinite());
}

TEST_F(WorkerTelemetryTest, TheArithmeticOfPassesAndStepsIsCounted) {
  const telemetry::testing::RecordedMetrics metrics;
  const auto of = [](const char* key, const char* value) {
    return telemetry::testing::RecordedMetrics::LabelList{{"base_model", "tiny"}, {key, value}};
  };
  sample(2);
  // Three tokens and one, through 160 weights; 16 a pair in attention; logits of the last one, through 64.
  ASSERT_TRUE(create_adapter("a").status.ok());  // one turn later than the sample
  EXPECT_EQ(metrics.gauge("tuft.sampling.model.flops", of("kind", "prefill")), 2 * 160 * 3 + 16 * 6 + 2 * 64);
  EXPECT_EQ(metrics.gauge("tuft.sampling.model.flops", of("kind", "decode")), 2 * 160 + 16 * 4 + 2 * 64);
  train("a", 1);
  v1::OptimStepResponse stepped;
  ASSERT_TRUE(optim_step("a", &stepped).status.ok());
  const int adapter = 4 * 4 * (4 + 4);  // rank 4, on the four matrices of attention
  EXPECT_EQ(metrics.gauge("tuft.training.model.flops", of("pass", "forward")),
            2 * (160 + adapter) * 3 + 16 * 6 + 2 * 64 * 3);
  EXPECT_EQ(metrics.gauge("tuft.training.model.flops", of("pass", "backward")),
            (2 * 160 + 4 * adapter) * 3 + 2 * 16 * 6 + 2 * 64 * 3);
}

}  // namespace
}  // namespace tuft::worker
