// Tests the metrics and spans of the supervisor, and the calls that carry telemetry.
#include <atomic>
#include <functional>
#include <memory>
#include <signal.h>
#include <string>
#include <thread>
#include <utility>

#include "actor/local_workers.h"
#include "actor/tests/supervisor_fixture.h"
#include "telemetry/testing/recorded_metrics.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::actor {
namespace {

using telemetry::testing::RecordedMetrics;
using telemetry::testing::text_of;

// While `given` is set, workers give signs of life besides their answers, like one that takes a large message
// through a narrow link. `asked` counts how often they were looked for.
struct Signs {
  std::atomic<bool> given = true;
  std::atomic<int> asked = 0;
};

class LifeWithSigns final : public WorkerLife {
 public:
  LifeWithSigns(std::unique_ptr<WorkerLife> inner, std::shared_ptr<Signs> signs)
      : inner_(std::move(inner)), signs_(std::move(signs)) {}

  uint64_t row() const override { return inner_->row(); }
  pid_t pid() const override { return inner_->pid(); }
  const std::string& host() const override { return inner_->host(); }
  Nanos last_sign() const override {
    ++signs_->asked;
    return signs_->given ? system_clock().monotonic() : 0;
  }
  int ended_fd() const override { return inner_->ended_fd(); }
  std::shared_ptr<grpc::Channel> connect() override { return inner_->connect(); }
  void ask_to_end() override { inner_->ask_to_end(); }
  void kill() override { inner_->kill(); }
  std::string reap() override { return inner_->reap(); }

 private:
  const std::unique_ptr<WorkerLife> inner_;
  const std::shared_ptr<Signs> signs_;
};

class SourceWithSigns final : public WorkerSource {
 public:
  SourceWithSigns(std::unique_ptr<WorkerSource> inner, std::shared_ptr<Signs> signs)
      : inner_(std::move(inner)), signs_(std::move(signs)) {}

  void on_available(std::function<void()> wake) override { inner_->on_available(std::move(wake)); }
  Result<std::unique_ptr<WorkerLife>> begin(uint64_t generation, const std::string& traceparent) override {
    TUFT_ASSIGN(std::unique_ptr<WorkerLife> life, inner_->begin(generation, traceparent));
    return std::unique_ptr<WorkerLife>(std::make_unique<LifeWithSigns>(std::move(life), signs_));
  }

 private:
  const std::unique_ptr<WorkerSource> inner_;
  const std::shared_ptr<Signs> signs_;
};

class WorkerMetricsTest : public SupervisorTest {
 protected:
  static RecordedMetrics::LabelList state(const char* name) { return {{"base_model", "tiny"}, {"state", name}}; }

  const RecordedMetrics::LabelList model_ = {{"base_model", "tiny"}};
  RecordedMetrics metrics_;
};

TEST_F(WorkerMetricsTest, AReadyWorkerIsUpAndHasAHeartbeatAndAStartupTime) {
  start_ready();
  EXPECT_EQ(metrics_.gauge("tuft.workers", state("ready")), 1);
  EXPECT_EQ(metrics_.gauge("tuft.workers", state("starting")), 0);
  EXPECT_EQ(metrics_.gauge("tuft.workers", state("dead")), 0);
  EXPECT_EQ(metrics_.gauge("tuft.worker.up", model_), 1);
  ASSERT_TRUE(metrics_.gauge("tuft.worker.heartbeat.age", model_));
  EXPECT_LT(*metrics_.gauge("tuft.worker.heartbeat.age", model_), 20);
  EXPECT_EQ(metrics_.count("tuft.worker.startup.duration", {{"base_model", "tiny"}, {"phase", "ready"}}), 1U);
  EXPECT_EQ(metrics_.counter("tuft.worker.restarts", model_), 0);
  actor_.reset();
  EXPECT_FALSE(metrics_.gauge("tuft.worker.up", model_)) << "no supervisor, no series";
}

TEST_F(WorkerMetricsTest, AWorkerThatNeverAnswersIsStartingAndNotUp) {
  start(spec({"--never-ready"}));
  EXPECT_EQ(metrics_.gauge("tuft.workers", state("starting")), 1);
  EXPECT_EQ(metrics_.gauge("tuft.worker.up", model_), 0);
  EXPECT_FALSE(metrics_.gauge("tuft.worker.heartbeat.age", model_)) << "it has not answered yet";
}

TEST_F(WorkerMetricsTest, AStoppedWorkerIsSilentAndNotUp) {
  WorkerSpec what = spec();
  what.heartbeat = 20 * kMillisecond;
  start(std::move(what));
  ASSERT_TRUE(actor_->wait_ready(20 * kSecond).ok());
  while (metrics_.gauge("tuft.worker.up", model_) == 0) std::this_thread::yield();  // shown after wait_ready() returns
  const pid_t process = pid();
  ASSERT_EQ(kill(process, SIGSTOP), 0);
  while (metrics_.gauge("tuft.worker.up", model_) == 1) std::this_thread::yield();
  EXPECT_EQ(metrics_.gauge("tuft.workers", state("silent")), 1);
  EXPECT_EQ(metrics_.gauge("tuft.workers", state("ready")), 0);
  ASSERT_EQ(kill(process, SIGCONT), 0);
  while (metrics_.gauge("tuft.worker.up", model_) == 0) std::this_thread::yield();
}

TEST_F(WorkerMetricsTest, AWorkerThatWasToldToEndIsUpAsLongAsItAnswers) {
  WorkerSpec what = spec({"--draining"});
  what.heartbeat = kSecond;
  start(std::move(what));
  while (metrics_.gauge("tuft.workers", state("draining")) != 1) std::this_thread::yield();
  EXPECT_EQ(metrics_.gauge("tuft.worker.up", model_), 1);
}

TEST_F(WorkerMetricsTest, AWorkerThatTakesALargeMessageIsNotSilent) {
  const auto signs = std::make_shared<Signs>();
  WorkerSpec what = spec();
  what.heartbeat = 20 * kMillisecond;
  const Supervision supervision = what;
  actor_ = make_joined_actor(
      supervision, std::make_unique<SourceWithSigns>(local_workers(std::move(what), supervision.shared.rows), signs));
  ASSERT_TRUE(actor_->start().ok());
  ASSERT_TRUE(actor_->wait_ready(20 * kSecond).ok());
  const pid_t process = pid();
  ASSERT_EQ(kill(process, SIGSTOP), 0);
  for (const int before = signs->asked; signs->asked < before + 30;) std::this_thread::yield();
  EXPECT_EQ(metrics_.gauge("tuft.worker.up", model_), 1) << "many health checks were not answered";
  signs->given = false;
  while (metrics_.gauge("tuft.worker.up", model_) == 1) std::this_thread::yield();
  EXPECT_EQ(metrics_.gauge("tuft.workers", state("silent")), 1);
}

TEST_F(WorkerMetricsTest, TheRestartOfAKilledWorkerIsCounted) {
  start_ready();
  ASSERT_EQ(kill(pid(), SIGKILL), 0);
  EXPECT_EQ(ready_.pop(), 2U);
  EXPECT_EQ(metrics_.counter("tuft.worker.restarts", model_), 1);
  EXPECT_EQ(metrics_.count("tuft.worker.startup.duration", {{"base_model", "tiny"}, {"phase", "ready"}}), 2U);
}

TEST_F(WorkerMetricsTest, CallsRecordTheirDurationByMethodAndStatus) {
  start_ready();
  EXPECT_TRUE(get(sample("")).ok());
  EXPECT_FALSE(get(sample("gone")).ok());
  EXPECT_EQ(metrics_.count("tuft.worker.rpc.duration", {{"method", "Sample"}, {"status", "ok"}}), 1U);
  EXPECT_EQ(metrics_.count("tuft.worker.rpc.duration", {{"method", "Sample"}, {"status", "gone"}}), 1U);
}

TEST_F(SupervisorTest, TheIdsTravelWithTheCall) {
  start_ready();
  CallOptions options;
  options.ids.set_session_id("a session");
  EXPECT_EQ(get(sample("ids", options))->response(), "a session");
  EXPECT_EQ(get(sample("ids"))->response(), "");
}

TEST_F(SupervisorTest, MetricsAreCollected) {
  start_ready();
  std::promise<Result<v1::CollectMetricsResponse>> promise;
  actor_->collect_metrics({}, {}, [&](auto result) { promise.set_value(std::move(result)); });
  EXPECT_EQ(promise.get_future().get()->snapshot(), "a snapshot");
}

TEST_F(SupervisorTest, CollectingFromASilentWorkerEndsAtTheDeadline) {
  start(spec({"--silent"}));
  ASSERT_TRUE(actor_->wait_ready(20 * kSecond).ok());
  std::promise<Result<v1::CollectMetricsResponse>> promise;
  actor_->collect_metrics({}, {}, [&](auto result) { promise.set_value(std::move(result)); });
  EXPECT_EQ(promise.get_future().get().error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(SupervisorTest, TheSpansOfTracesAreCollected) {
  start_ready();
  v1::CollectTracesRequest request;
  request.add_traces()->set_high(3);
  request.set_bytes_max(1000);
  std::promise<Result<v1::CollectTracesResponse>> promise;
  actor_->collect_traces(request, {}, [&](auto result) { promise.set_value(std::move(result)); });
  EXPECT_EQ(promise.get_future().get()->spans(), "3/1000");
}

TEST_F(SupervisorTest, KeepTracesReachesTheWorker) {
  start_ready();
  v1::KeepTracesRequest request;
  auto& trace = *request.add_traces();
  trace.set_high(3);
  trace.set_low(4);
  actor_->keep_traces(request, {}, [](const Result<v1::KeepTracesResponse>&) {});
  // The calls run concurrently, so ask until the worker has received the first.
  SampleResult kept = get(sample("kept traces"));
  while (kept.ok() && kept->response().empty()) kept = get(sample("kept traces"));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->response(), "3/4");
}

TEST_F(SupervisorTest, TheStartIsASpanWithTheWorkersSpansBelowIt) {
  telemetry::WithCollector collector;
  telemetry::SpanContext server;
  {
    auto span = telemetry::get_tracer("test").start_span("server.start");
    server = span.context();
    const telemetry::ContextScope scope(server);
    start_ready();
  }
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("worker.start");
  ASSERT_TRUE(span);
  EXPECT_EQ(span->trace_id, server.trace_id_hex());
  EXPECT_EQ(span->parent_span_id, server.span_id_hex());
  EXPECT_EQ(text_of(span->attributes, "tuft.base_model"), "tiny");
  const std::string flag = get(sample("traceparent flag"))->response();
  EXPECT_EQ(flag, "00-" + span->trace_id + "-" + span->span_id + "-01");
  actor_.reset();
}

TEST_F(SupervisorTest, TheSpanOfAFailedStartSaysWhy) {
  telemetry::WithCollector collector;
  start(spec({"--exit-at-once"}));
  EXPECT_FALSE(actor_->wait_ready(20 * kSecond).ok());
  actor_.reset();
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("worker.start");
  ASSERT_TRUE(span);
  EXPECT_TRUE(span->error);
  EXPECT_NE(span->status_message.find("code 3"), std::string::npos) << span->status_message;
}

}  // namespace
}  // namespace tuft::actor
