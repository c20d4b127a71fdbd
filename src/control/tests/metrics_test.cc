// Tests of the metrics of the control plane: every operation is counted, and only once.
#include <random>

#include "control/tests/plane.h"
#include "control/workers/model_backend.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::control {
namespace {

using telemetry::testing::ReceivedPoint;
using telemetry::testing::text_of;

class ControlMetrics : public PlaneTest {
 protected:
  // Returns the sum over all series that have these labels.
  double total(const std::string& name, const std::map<std::string, std::string>& labels = {}) {
    const auto metric = collector.receiver.metric(name);
    double sum = 0;
    if (!metric.has_value()) return 0;
    for (const ReceivedPoint& point : metric->points) {
      bool fits = true;
      for (const auto& [key, value] : labels) fits = fits && text_of(point.labels, key) == value;
      if (fits) sum += metric->kind == "histogram" ? static_cast<double>(point.count) : point.value;
    }
    return sum;
  }
  // Returns the sum of a histogram's series.
  double sum_of(const std::string& name, const std::map<std::string, std::string>& labels) {
    const auto metric = collector.receiver.metric(name);
    const ReceivedPoint* point = metric.has_value() ? metric->point(labels) : nullptr;
    return point == nullptr ? 0 : point->sum;
  }
  void flush() { ASSERT_TRUE(collector.flush()); }

  telemetry::WithCollector collector;
};

TEST_F(ControlMetrics, WaitTimeEndsWhenTheWorkerBegan) {
  const RunId run = boot_with_run();
  flush();
  const std::map<std::string, std::string> type = {{"operation_type", "forward_backward"}};
  const double waited = sum_of("tuft.futures.wait_time", type);
  const double executed = sum_of("tuft.futures.execution_time", type);
  worker().hold_answers(true);
  worker().set_queue_seconds(2);
  const RequestId second = forward_backward(run, alice, 2);
  clock().advance(3 * kSecond);  // waits for the seq_id before it
  forward_backward(run, alice, 1);
  ASSERT_TRUE(worker().answer_next());
  clock().advance(7 * kSecond);  // two of them in the worker's queue
  ASSERT_TRUE(worker().answer_next());
  value<ProtobufResult>(alice, second);
  flush();
  EXPECT_DOUBLE_EQ(sum_of("tuft.futures.wait_time", type) - waited, 3 + 2);
  EXPECT_DOUBLE_EQ(sum_of("tuft.futures.execution_time", type) - executed, 5);
}

TEST_F(ControlMetrics, QueueLengthTellsHowOperationsWait) {
  const char* const name = "tuft.futures.queue_length";
  const auto in = [&](const char* state) { return total(name, {{"queue_state", state}}); };
  config().limits.samples_in_flight_per_user_max = kSamplingSlots + 2;
  boot();
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  flush();
  const double before = in("active");
  worker().hold_answers(true);
  for (int i = 0; i < kSamplingSlots + 1; ++i) sample(sampler, alice);
  flush();
  EXPECT_EQ(in("active") - before, kSamplingSlots) << "a worker has them";
  EXPECT_EQ(in("paused_capacity"), 1);
  EXPECT_EQ(in("paused_rate_limit"), 0);
  const RequestId last = sample(sampler, alice);
  flush();
  EXPECT_EQ(in("active") - before, kSamplingSlots);
  EXPECT_EQ(in("paused_capacity"), 0);
  EXPECT_EQ(in("paused_rate_limit"), 2) << "their user is at a limit";
  ASSERT_TRUE(plane().cancel_future(alice, last).ok());
  flush();
  EXPECT_EQ(in("paused_rate_limit"), 0);
  EXPECT_EQ(in("paused_capacity"), 1);
  worker().die();
  flush();
  EXPECT_EQ(in("paused_capacity"), total(name) - in("active")) << "a worker that is away is no capacity";
  plane().shut_down();
  flush();
  EXPECT_EQ(total(name), before);
  std::map<std::string, int> told;
  for (const auto& span : collector.receiver.spans()) {
    if (span.name == "future_store.execute_operation") ++told[text_of(span.attributes, "tuft.queue_state")];
  }
  EXPECT_EQ(told["paused_rate_limit"], 1) << "the one that was cancelled while it waited";
  EXPECT_GE(told["paused_capacity"], 1) << "the last state before a worker got it";
}

TEST_F(ControlMetrics, SamplingSessionsAreCountedUpAndDownAndSamplesAreTimed) {
  const std::map<std::string, std::string> labels = {{"base_model", model}};
  boot();
  flush();
  const double active = total("tuft.sampling.sessions.active", labels);
  const double timed = total("tuft.sampling.duration", labels);
  const double seconds = sum_of("tuft.sampling.duration", labels);
  const SessionId mine = session(alice);
  const SamplerId first = *try_sampler(mine, alice, 0, model);
  *try_sampler(mine, alice, 1, model);
  flush();
  EXPECT_EQ(total("tuft.sampling.sessions.active", labels) - active, 2);
  worker().hold_answers(true);
  const RequestId request = sample(first, alice);
  clock().advance(3 * kSecond);
  worker().answer_all();
  value<ProtobufResult>(alice, request);
  flush();
  EXPECT_EQ(total("tuft.sampling.duration", labels) - timed, 1);
  EXPECT_DOUBLE_EQ(sum_of("tuft.sampling.duration", labels) - seconds, 3);
  EXPECT_TRUE(plane().end_session(alice, mine, {}).ok());
  advance(kSecond);
  flush();
  EXPECT_EQ(total("tuft.sampling.sessions.active", labels) - active, 0);
}

TEST_F(ControlMetrics, AnOperationThatNoWorkerBeganHasNoTimes) {
  const RunId run = boot_with_run();
  flush();
  const double before = total("tuft.futures.wait_time", {{"operation_type", "forward_backward"}});
  const double timeouts = total("tuft.requests.terminal", {{"status", "timeout"}});
  const RequestId late = forward_backward(run, alice, 5);
  advance(config().limits.gap_timeout_seconds * kSecond);
  EXPECT_EQ(failure(alice, late).reason, "seq_id_gap");
  flush();
  EXPECT_EQ(total("tuft.futures.wait_time", {{"operation_type", "forward_backward"}}), before);
  EXPECT_EQ(total("tuft.requests.terminal", {{"status", "timeout"}}), timeouts + 1);
}

TEST_F(ControlMetrics, LossIsTheMeanPerWeightedToken) {
  const RunId run = boot_with_run();
  flush();
  const std::map<std::string, std::string> labels = {{"base_model", model}, {"loss_fn", "cross_entropy"}};
  const double before = sum_of("tuft.training.loss", labels);
  const double bad = total("tuft.training.nonfinite", {{"what", "loss"}});
  worker().set_loss(6, 4);
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  worker().set_loss(std::numeric_limits<double>::quiet_NaN(), 4);
  value<ProtobufResult>(alice, forward_backward(run, alice, 2));
  worker().set_loss(-100, 0);  // the second pass of a custom loss
  value<ProtobufResult>(alice, forward_backward(run, alice, 3));
  flush();
  EXPECT_DOUBLE_EQ(sum_of("tuft.training.loss", labels), before + 1.5);
  EXPECT_EQ(total("tuft.training.nonfinite", {{"what", "loss"}}), bad + 1);
}

TEST_F(ControlMetrics, AStepThatMakesWeightsNonFiniteIsCounted) {
  const RunId run = boot_with_run();
  flush();
  const std::map<std::string, std::string> update = {{"base_model", model}, {"what", "update"}};
  const double before = total("tuft.training.nonfinite", update);
  const double steps = total("tuft.training.optim_steps", {{"base_model", model}});
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().set_breaks_weights(true);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  flush();
  EXPECT_EQ(total("tuft.training.nonfinite", update), before + 1);
  EXPECT_EQ(total("tuft.training.optim_steps", {{"base_model", model}}), steps + 2);
}

TEST_F(ControlMetrics, AStepWithoutAGradientThenNoneIsCounted) {
  const RunId run = boot_with_run();
  const std::map<std::string, std::string> labels = {{"base_model", model}};
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  flush();
  const double steps = total("tuft.training.optim_steps", labels);
  const double norms = total("tuft.training.grad_norm", labels);
  worker().fail_next("forward_backward", invalid_argument("loss_fn is unknown"));
  forward_backward(run, alice, 2);
  worker().set_without_gradient(true);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  flush();
  EXPECT_EQ(total("tuft.training.optim_steps", labels), steps);
  EXPECT_EQ(total("tuft.training.grad_norm", labels), norms);
  worker().set_without_gradient(false);
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
  flush();
  EXPECT_EQ(total("tuft.training.optim_steps", labels), steps + 1);
  EXPECT_EQ(total("tuft.training.grad_norm", labels), norms + 1);
}

TEST_F(ControlMetrics, GaugesFollowTheOperations) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId first = forward_backward(run, alice, 1);
  forward_backward(run, alice, 2);
  const std::map<std::string, std::string> type = {{"operation_type", "forward_backward"}};
  clock().advance(4 * kSecond);
  flush();
  EXPECT_EQ(total("tuft.futures.running", type), 1);
  EXPECT_EQ(total("tuft.futures.queued", type), 1);
  EXPECT_EQ(total("tuft.futures.oldest_age", {{"state", "running"}}), 4);
  EXPECT_EQ(total("tuft.futures.oldest_age", {{"state", "queued"}}), 4);
  EXPECT_EQ(total("tuft.training.runs", {{"base_model", model}, {"state", "active"}}), 1);
  worker().answer_all();
  flush();
  EXPECT_EQ(total("tuft.futures.running", type) + total("tuft.futures.queued", type), 0);
  EXPECT_EQ(total("tuft.futures.ready_unread", type), 2);
  EXPECT_GT(total("tuft.futures.store.bytes"), 0);
  const double polls = total("tuft.futures.retrieve.polls", type);
  const double delay = sum_of("tuft.futures.delivery.delay", type);
  clock().advance(2 * kSecond);
  value<ProtobufResult>(alice, first);
  value<ProtobufResult>(alice, first);  // read again: counted once
  flush();
  EXPECT_EQ(total("tuft.futures.ready_unread", type), 1);
  EXPECT_EQ(total("tuft.futures.retrieve.polls", type), polls + 1);
  EXPECT_DOUBLE_EQ(sum_of("tuft.futures.delivery.delay", type), delay + 2);
  advance(config().limits.future_retention_seconds * kSecond + kSecond);
  flush();
  EXPECT_EQ(total("tuft.futures.ready_unread", type), 0);
  EXPECT_EQ(total("tuft.futures.store.bytes"), 0);
}

// Views come and go beside each other, and the last of them may end when the server leads already.
TEST_F(ControlMetrics, ViewsOfAServerThatStandsByReportNothing) {
  keep_state();
  const auto [session, run] = boot_with_session_and_run();
  save_for_sampler(run, alice, 1, "one");
  settle();
  ASSERT_TRUE(try_sampler(session, alice, 0, "", "tinker://" + run.str() + "/sampler_weights/one").ok());
  ASSERT_TRUE(durable().ok());
  const auto gauges = [this] {
    flush();
    std::map<std::string, double> seen;
    for (const char* name : {"tuft.sessions.active", "tuft.training.models.active", "tuft.sampling.sessions.active",
                             "tuft.training.runs", "tuft.futures.ready_unread"}) {
      seen[name] = total(name);
    }
    return seen;
  };
  const auto before = gauges();
  EXPECT_GE(before.at("tuft.training.runs"), 1);
  auto first = view();
  EXPECT_TRUE(first->catalog().training_run(alice, run, Scope::kOwned).ok());
  auto second = view();
  first.reset();
  EXPECT_EQ(gauges(), before);
  second.reset();
  EXPECT_EQ(gauges(), before);
}

TEST_F(ControlMetrics, StaticSeriesExistFromTheStart) {
  config().supported_models[0].model_name = "org/untouched";
  boot();
  flush();
  for (const char* name : {"tuft.training.models.active", "tuft.sampling.sessions.active", "tuft.sampling.requests",
                           "tuft.training.tokens_per_second", "tuft.training.optim_steps", "tuft.requests.terminal"}) {
    const auto metric = collector.receiver.metric(name);
    ASSERT_TRUE(metric.has_value()) << name;
    bool found = false;
    for (const ReceivedPoint& point : metric->points) {
      found = found || text_of(point.labels, "base_model") == "org/untouched";
    }
    EXPECT_TRUE(found) << name;
  }
}

TEST_F(ControlMetrics, TenantsAreCountedOnlyIfConfigured) {
  flush();
  const double requests = total("tuft.tenant.requests", {{"tenant", "bob"}});
  const double tokens = total("tuft.tenant.tokens", {{"tenant", "bob"}, {"kind", "train"}});
  boot();
  create_model(bob);
  flush();
  EXPECT_EQ(total("tuft.tenant.requests", {{"tenant", "bob"}}), requests);
  config().telemetry.tenant_label = true;
  boot();
  const RunId run = create_model(bob);
  value<ProtobufResult>(bob, forward_backward(run, bob, 1));
  flush();
  EXPECT_EQ(total("tuft.tenant.requests", {{"tenant", "bob"}}), requests + 2);
  EXPECT_EQ(total("tuft.tenant.tokens", {{"tenant", "bob"}, {"kind", "train"}}), tokens + 3);
}

// An operation may succeed, fail, be refused, lose its worker, wait for a seq_id that never arrives, or be ended by the
// server: it ends once and is counted once.
TEST_F(ControlMetrics, EveryOperationIsCountedAsEndedOnce) {
  std::mt19937 random(4711);
  const auto pick = [&](unsigned below) { return static_cast<int>(random() % below); };
  boot();
  flush();
  const double created = total("tuft.futures.created");
  const double terminal = total("tuft.requests.terminal");
  const double in_flight = total("tuft.futures.queue_length");
  double accepted = 0;
  double refused = 0;
  const SessionId mine = session(alice);
  std::vector<RunId> runs;
  std::vector<int32_t> next;
  for (int i = 0; i < 3; ++i) {
    runs.push_back(create_model(mine, alice, i));
    next.push_back(1);
    ++accepted;
  }
  const SamplerId sampler = *try_sampler(mine, alice, 0, model);
  const auto count = [&](const Result<Submitted>& submitted) { ++(submitted.ok() ? accepted : refused); };
  for (int step = 0; step < 600; ++step) {
    const auto index = static_cast<size_t>(pick(3));
    const RunId& run = runs[index];
    switch (pick(12)) {
      case 0:
        worker().hold_answers(pick(2) == 0);
        break;
      case 1:
        worker().fail_next("forward_backward", internal_error("out of luck"));
        break;
      case 2:
        worker().fail_next("sample", Error{ErrorCode::kCancelled, "given up", ""});
        break;
      case 3:
        worker().die();
        break;
      case 4:
        if (!worker().ready()) worker().start();
        break;
      case 5:
        next[index] += pick(2);  // a seq_id that never arrives
        break;
      case 6:
        advance(pick(2) == 0 ? kSecond : 400 * kSecond);
        break;
      case 7:
        count(try_forward_backward(RunId("nobody:train:0"), alice, 1));
        break;
      case 8:
        count(plane().sample(alice, sample_request(sampler), no_trace));
        break;
      case 9:
        count(plane().optim_step(alice, {run, next[index]++}, no_trace));
        break;
      default:
        count(try_forward_backward(run, alice, next[index]++));
        worker().answer_next();
    }
  }
  plane().shut_down();
  worker().stop_holding();
  flush();
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 10);
  EXPECT_EQ(total("tuft.futures.created") - created, accepted);
  EXPECT_EQ(total("tuft.requests.terminal") - terminal, accepted + refused);
  EXPECT_GE(total("tuft.requests.terminal", {{"status", "rejected"}, {"base_model", "unknown"}}), 1);
  for (const char* status : {"ok", "failed", "cancelled", "timeout"}) {
    EXPECT_GT(total("tuft.requests.terminal", {{"status", status}}), 0) << status;
  }
  EXPECT_EQ(total("tuft.futures.queue_length"), in_flight);
  EXPECT_EQ(total("tuft.futures.queued") + total("tuft.futures.running"), 0);
}

}  // namespace
}  // namespace tuft::control
