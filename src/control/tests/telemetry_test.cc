// Tests of the telemetry of the control plane, as a collector receives it.
#include <algorithm>
#include <set>

#include "control/tests/plane.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::control {
namespace {

using telemetry::testing::ReceivedSpan;
using telemetry::testing::text_of;

class Telemetry : public PlaneTest {
 protected:
  // Does everything that a client can do, under one server span.
  void use_everything() {
    telemetry::Span server = telemetry::get_tracer("test").start_span("server", {.parent = {}});
    server_ = server.context();
    const CreateModel create = create_request(session(alice), 0, 4);
    const RunId run = value<CreateModelResult>(alice, plane().create_model(alice, create, server_)->request).run;
    tinker_public::ForwardBackwardRequest pass;
    pass.set_model_id(run.str());
    pass.set_loss_fn("cross_entropy");
    pass.set_seq_id(2);
    const RequestId second = plane().forward_backward(alice, pass, server_)->request;
    pass.set_seq_id(1);
    pass.set_forward_only(true);
    EXPECT_TRUE(plane().forward_backward(alice, pass, server_).ok());
    value<ProtobufResult>(alice, second);
    worker().fail_next("optim_step", internal_error("out of luck"));
    EXPECT_EQ(failure(alice, plane().optim_step(alice, {run, 3}, server_)->request).message, "out of luck");
    const auto path =
        value<SaveWeightsResult>(alice, plane().save_weights(alice, {run, 4, "a", {}, false}, server_)->request).path;
    value<LoadWeightsResult>(alice, plane().load_weights(alice, {run, 5, path, true}, server_)->request);
    const auto saved = value<SaveWeightsForSamplerResult>(
        alice, plane().save_weights_for_sampler(alice, {run, 6, "", 0, {}}, server_)->request);
    value<ProtobufResult>(alice, plane().sample(alice, sample_request(*saved.sampler), server_)->request);
    await_files(alice, path);
    value<UnloadModelResult>(alice, plane().unload_model(alice, run, server_)->request);
    run_ = run;
  }

  telemetry::SpanContext server_;
  RunId run_;
};

const ReceivedSpan* parent_of(const std::vector<ReceivedSpan>& spans, const ReceivedSpan& child) {
  for (const ReceivedSpan& span : spans) {
    if (span.span_id == child.parent_span_id) return &span;
  }
  return nullptr;
}

TEST_F(Telemetry, TrainingIsOneLineAMinuteAndSilenceIsNone) {
  telemetry::WithCollector collector;
  const RunId run = boot_with_run();
  const auto minutes = [&] {
    EXPECT_TRUE(collector.flush());
    std::vector<telemetry::testing::ReceivedLog> found;
    for (const auto& log : collector.receiver.logs()) {
      if (log.event_name == "training.activity") found.push_back(log);
    }
    return found;
  };
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  advance(59 * kSecond);
  EXPECT_EQ(minutes().size(), 0U);
  advance(2 * kSecond);
  advance(kSecond);
  const auto lines = minutes();
  ASSERT_EQ(lines.size(), 1U);
  const auto& attributes = lines[0].attributes;
  EXPECT_EQ(text_of(attributes, "tuft.base_model"), model);
  EXPECT_EQ(text_of(attributes, "tuft.runs"), "1");
  EXPECT_EQ(text_of(attributes, "tuft.users"), "1");
  EXPECT_EQ(text_of(attributes, "tuft.optim_steps"), "1");
  EXPECT_EQ(text_of(attributes, "tuft.queue_depth"), "0");
  EXPECT_GT(std::stod(text_of(attributes, "tuft.tokens_per_second")), 0);
  advance(61 * kSecond);
  EXPECT_EQ(minutes().size(), 1U) << "nothing was trained in this minute";
  const auto created = collector.log("session.created");
  ASSERT_TRUE(created.has_value());
  EXPECT_EQ(text_of(created->attributes, "tuft.user"), "alice");
}

TEST_F(Telemetry, EveryOperationIsOneConnectedTree) {
  telemetry::WithCollector collector;
  boot();
  use_everything();
  ASSERT_TRUE(collector.flush());
  const auto spans = collector.receiver.spans();
  std::set<std::string> names;
  for (const ReceivedSpan& span : spans) {
    names.insert(span.name);
    if (span.name == "server") continue;
    EXPECT_EQ(span.trace_id, server_.trace_id_hex()) << span.name;
    const ReceivedSpan* parent = parent_of(spans, span);
    ASSERT_NE(parent, nullptr) << span.name;
    if (span.name == "future_store.execute_operation") {
      EXPECT_EQ(parent->name, "server");
      EXPECT_FALSE(text_of(span.attributes, "tuft.request_id").empty());
      EXPECT_FALSE(text_of(span.attributes, "tuft.operation_type").empty());
    } else if (span.name.starts_with("training_controller.") || span.name == "sampling_controller.run_sample") {
      EXPECT_EQ(parent->name, "future_store.execute_operation") << span.name;
    } else if (span.name.starts_with("training_backend.") && span.name != "training_backend.remove_adapter") {
      EXPECT_EQ(parent->scope, "tuft.training_controller") << span.name;
      EXPECT_EQ(text_of(span.attributes, "tuft.training_run_id"), run_.str());
    }
    EXPECT_FALSE(text_of(span.attributes, "tuft.session_id").empty()) << span.name;
    EXPECT_EQ(text_of(span.attributes, "tuft.base_model"), model) << span.name;
    EXPECT_EQ(text_of(span.attributes, "tuft.lora_rank"), "4") << span.name;
    const bool of_sampler = span.name.starts_with("sampling_");
    EXPECT_FALSE(text_of(span.attributes, of_sampler ? "tuft.sampling_session_id" : "tuft.training_run_id").empty() &&
                 text_of(span.attributes, "tuft.operation_type") != "sample")
        << span.name;
    if (span.name != "sampling_controller.create_sampling_session") {
      EXPECT_FALSE(text_of(span.attributes, "tuft.request_id").empty()) << span.name;
      EXPECT_FALSE(text_of(span.attributes, "tuft.operation_type").empty()) << span.name;
    }
    if (span.name.find("forward") != std::string::npos) {
      EXPECT_EQ(text_of(span.attributes, "tuft.backward"), span.name.ends_with("backward") ? "true" : "false");
    }
    if (span.scope == "tuft.training_controller") {
      EXPECT_EQ(text_of(span.attributes, "tuft.training_run_id"), run_.str());
      EXPECT_EQ(text_of(span.attributes, "tuft.base_model"), model);
      EXPECT_EQ(text_of(span.attributes, "tuft.lora_rank"), "4");
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"server",
                                          "future_store.execute_operation",
                                          "training_controller.create_model",
                                          "training_controller.run_forward",
                                          "training_controller.run_forward_backward",
                                          "training_controller.run_optim_step",
                                          "training_controller.save_checkpoint",
                                          "training_controller.load_checkpoint",
                                          "sampling_controller.create_sampling_session",
                                          "sampling_controller.run_sample",
                                          "training_backend.create_adapter",
                                          "training_backend.remove_adapter",
                                          "training_backend.forward",
                                          "training_backend.forward_backward",
                                          "training_backend.optim_step",
                                          "training_backend.save_state",
                                          "training_backend.load_state",
                                          "sampling_backend.sample",
                                          "training_backend.publish_adapter",
                                          "training_backend.save_sampler"}));
}

TEST_F(Telemetry, OnlyLossesOfTheWorkerAreRecordedByName) {
  telemetry::WithCollector collector;
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1, "cross_entropy"));
  value<ProtobufResult>(alice, forward_backward(run, alice, 2, "invented by a client"));
  ASSERT_TRUE(collector.flush());
  std::multiset<std::string> losses;
  for (const ReceivedSpan& span : collector.receiver.spans()) {
    if (span.name == "training_controller.run_forward_backward") {
      losses.emplace(text_of(span.attributes, "tuft.loss_fn"));
    }
  }
  EXPECT_EQ(losses, (std::multiset<std::string>{"cross_entropy", "unknown"}));
}

TEST_F(Telemetry, AFailureMarksEveryLevel) {
  telemetry::WithCollector collector;
  boot();
  use_everything();
  ASSERT_TRUE(collector.flush());
  std::set<std::string> failed;
  for (const ReceivedSpan& span : collector.receiver.spans()) {
    if (!span.error) continue;
    failed.insert(span.name);
    EXPECT_EQ(std::count_if(span.events.begin(), span.events.end(),
                            [](const auto& event) { return event.name == "exception"; }),
              1)
        << span.name;
  }
  EXPECT_EQ(failed, (std::set<std::string>{"future_store.execute_operation", "training_controller.run_optim_step",
                                           "training_backend.optim_step"}));
}

TEST_F(Telemetry, WhatWasCountedUpIsCountedDown) {
  telemetry::WithCollector collector;
  boot();
  const auto before = [&](const char* name, const std::map<std::string, std::string>& labels) {
    return std::max(0.0, collector.sum(name, labels));
  };
  ASSERT_TRUE(collector.flush());
  const double created = before("tuft.futures.created", {{"operation_type", "forward"}});
  const double queued = before("tuft.futures.queue_length", {{"queue_state", "active"}});
  const double models = before("tuft.training.models.active", {{"base_model", model}});
  use_everything();
  worker().hold_answers(true);
  const RunId run(session(alice).str() + ":train:0");
  submit_create(SessionId(run.str().substr(0, 36)), alice);
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.futures.created", {{"operation_type", "forward"}}), created + 1);
  EXPECT_EQ(collector.sum("tuft.futures.queue_length", {{"queue_state", "active"}}), queued + 1);
  EXPECT_EQ(collector.sum("tuft.training.models.active", {{"base_model", model}}), models);
  EXPECT_GE(collector.sum("tuft.sequence_guard.out_of_order", {{"operation_type", "forward_backward"}}), 1);
  EXPECT_GE(collector.sum("tuft.futures.completed",
                          {{"operation_type", "optim_step"}, {"status", "failed"}, {"error_category", "server"}}),
            1);
  EXPECT_GE(collector.sum("tuft.training.checkpoints.saved", {{"checkpoint_type", "training"}}), 1);
  EXPECT_GE(collector.sum("tuft.sampling.requests", {{"base_model", model}, {"status", "ok"}}), 1);
  plane().shut_down();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.futures.queue_length", {{"queue_state", "active"}}), queued);
}

TEST_F(Telemetry, WorkerIsToldOfATraceThatIsKeptAfterAll) {
  telemetry::TelemetryConfig sampling;
  sampling.sampling_ratio = 0;
  sampling.keep_errors = true;
  telemetry::WithCollector collector(sampling);
  const RunId run = boot_with_run();
  worker().fail_next("optim_step", internal_error("out of luck"));
  telemetry::Span server = telemetry::get_tracer("test").start_span("server", {.parent = {}});
  failure(alice, plane().optim_step(alice, {run, 1}, server.context())->request);
  server.end();
  ASSERT_TRUE(collector.flush());
  ASSERT_TRUE(collector.receiver.wait_until([&] { return !worker().kept_traces().empty(); }));
  const auto kept = worker().kept_traces();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].high(), server.context().trace_id_high);
  EXPECT_EQ(kept[0].low(), server.context().trace_id_low);
  EXPECT_TRUE(collector.span("training_backend.optim_step").has_value());
  EXPECT_FALSE(collector.span("training_backend.create_adapter").has_value()) << "nothing failed there";
}

TEST_F(Telemetry, MetricsOfWorkersThatDoNotAnswerAreLeftOut) {
  config().supported_models.push_back(config().supported_models[0]);
  config().supported_models[1].model_name = "org/second";
  boot();
  worker(0).set_metrics_snapshot("one");
  worker(1).set_metrics_snapshot("two");
  std::vector<telemetry::WorkerMetrics> seen;
  const auto keep = [&](std::vector<telemetry::WorkerMetrics> workers) { seen = std::move(workers); };
  plane().collect_worker_metrics(keep);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[1].worker, "org/second");
  EXPECT_EQ(seen[1].snapshot, "two");
  worker(0).die();
  worker(1).hold_answers(true);
  plane().collect_worker_metrics(keep);
  EXPECT_EQ(seen.size(), 2U) << "the answer is not there yet";
  worker(1).answer_all();
  ASSERT_EQ(seen.size(), 1U);
  worker(1).die();
  plane().collect_worker_metrics(keep);
  EXPECT_TRUE(seen.empty());
}

TEST_F(Telemetry, LifeCycleLogsCarryIds) {
  telemetry::WithCollector collector;
  boot();
  use_everything();
  ASSERT_TRUE(collector.flush());
  std::set<std::string> events;
  for (const auto& log : collector.receiver.logs()) {
    events.insert(log.event_name);
    if (log.event_name == "checkpoint.save.completed") {
      EXPECT_EQ(text_of(log.attributes, "tuft.training_run_id"), run_.str());
      EXPECT_EQ(log.trace_id, server_.trace_id_hex());
    }
  }
  for (const char* event :
       {"session.created", "model.created", "checkpoint.save.completed", "checkpoint.load.completed",
        "sampling_session.created", "model.unloaded", "future.failed"}) {
    EXPECT_TRUE(events.contains(event)) << event;
  }
}

}  // namespace
}  // namespace tuft::control
