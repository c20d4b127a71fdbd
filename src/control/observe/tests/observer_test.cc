// What users and operators see of the server.
#include "control/observe/observer.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "control/tests/fake_telemetry_store.h"
#include "control/tests/plane.h"

namespace tuft::control {
namespace {

using telemetry_store::RunStep;
using telemetry_store::Span;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Observing : public PlaneTest {
 protected:
  Observing() {
    config().console.operators = {"carol"};
    config().authorized_users["tml-carol"] = "carol";
    keep_telemetry(&store);
  }
  Observer& observer() { return plane().observer(); }
  template <typename Row, typename Id>
  static std::vector<Id> ids(const PartOf<Row>& part, Id Row::*id) {
    std::vector<Id> found;
    for (const Row& row : part.rows) found.push_back(row.*id);
    return found;
  }
  void record_steps(const RunId& run, const UserId& user, int count) {
    for (int i = 1; i <= count; ++i) {
      store.add_step({.run = run.str(),
                      .owner = user.str(),
                      .step = i,
                      .loss = 1.0 / i,
                      .tokens = 100,
                      .pass_seconds = 0.4,
                      .idle_seconds = 0.6});
    }
  }

  const UserId carol{"carol"};
  FakeTelemetryStore store;
};

TEST_F(Observing, AnOperatorIsNamedInTheConfiguration) {
  boot();
  EXPECT_TRUE(observer().is_operator(carol));
  EXPECT_FALSE(observer().is_operator(alice));
  EXPECT_FALSE(observer().is_operator(UserId()));
}

TEST_F(Observing, EveryQuestionSaysWhoAsks) {
  boot();
  const telemetry_store::Filter filter{.user = "bob"};
  telemetry_store::MetricQuery metric;
  metric.name = "m";
  for (const UserId& user : {alice, carol}) {
    store.viewers.clear();
    (void)observer().traces(user, filter, {});
    (void)observer().durations(user, filter);
    (void)observer().span_series(user, filter, telemetry_store::SpanFunction::kCount, "user", kSecond);
    (void)observer().trace(user, "t");
    (void)observer().logs(user, {});
    (void)observer().metrics(user);
    (void)observer().metric(user, metric);
    (void)observer().exemplars(user, metric);
    (void)observer().steps(user, RunId("r"), 0, 10);
    EXPECT_THAT(store.viewers, SizeIs(9));
    for (const telemetry_store::Viewer& viewer : store.viewers) {
      EXPECT_EQ(viewer.all, user == carol);
      EXPECT_EQ(viewer.user, user.str());
    }
  }
}

TEST_F(Observing, WithoutAStoreTheQuestionsSaySo) {
  keep_telemetry(nullptr);
  const RunId run = boot_with_run();
  EXPECT_FALSE(observer().has_store());
  EXPECT_EQ(observer().traces(alice, {}, {}).error().reason, "telemetry_store_off");
  EXPECT_EQ(observer().steps(alice, run, 0, 1).error().reason, "telemetry_store_off");
  EXPECT_EQ(observer().metrics(alice).error().reason, "telemetry_store_off");
  const auto details = observer().run(alice, run);
  ASSERT_TRUE(details.ok());
  EXPECT_THAT(details->advice, IsEmpty());
  EXPECT_TRUE(std::isnan(details->run.loss));
  EXPECT_FALSE(observer().system(alice).store);
}

TEST_F(Observing, RunsAreTheUsersOwn) {
  const RunId run = boot_with_run();
  const RunId bobs = create_model(bob);
  EXPECT_THAT(ids(observer().runs(alice, {}), &RunRow::run), ElementsAre(run));
  EXPECT_THAT(ids(observer().runs(bob, {}), &RunRow::run), ElementsAre(bobs));
  EXPECT_THAT(ids(observer().runs(carol, {}), &RunRow::run), SizeIs(2));
  EXPECT_TRUE(observer().run(carol, bobs).ok());
  const auto foreign = observer().run(alice, bobs);
  const auto unknown = observer().run(alice, RunId("never"));
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().message, unknown.error().message);
  EXPECT_EQ(foreign.error().reason, unknown.error().reason);
  EXPECT_EQ(observer().steps(alice, bobs, 0, 9).error().message, foreign.error().message);
}

TEST_F(Observing, ARunWithItsCurveAndAdvice) {
  const RunId run = boot_with_run();
  record_steps(run, alice, 20);
  const auto details = observer().run(alice, run);
  ASSERT_TRUE(details.ok());
  EXPECT_EQ(details->run.user, alice);
  EXPECT_EQ(details->run.steps, 20);
  EXPECT_DOUBLE_EQ(details->run.loss, 0.05);
  EXPECT_NEAR(details->run.tokens_per_second, 100, 1e-9);
  EXPECT_TRUE(details->run.alive);
  EXPECT_GT(details->run.created, 0);
  EXPECT_EQ(details->time.steps, 20);
  EXPECT_THAT(details->advice.front(), HasSubstr("60 % of the time no request was waiting"));
  EXPECT_THAT(observer().steps(alice, run, 15, 100).value(), SizeIs(5));
}

TEST_F(Observing, AnUnloadedRunIsDescribedByItsCheckpoints) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "kept"));
  (void)wait(alice, plane().unload_model(alice, run, no_trace)->request);
  const auto details = observer().run(alice, run);
  ASSERT_TRUE(details.ok());
  EXPECT_FALSE(details->run.alive);
  ASSERT_THAT(details->checkpoints, SizeIs(1));
  EXPECT_EQ(details->checkpoints.front()->path.name, "kept");
  EXPECT_THAT(ids(observer().runs(alice, {}), &RunRow::run), ElementsAre(run));
  EXPECT_FALSE(observer().run(bob, run).ok());
}

TEST_F(Observing, ListsComeInParts) {
  boot();
  std::vector<RunId> made;
  for (int i = 0; i < 5; ++i) {
    made.push_back(create_model(i % 2 == 0 ? alice : bob));
    clock().advance(kSecond);
  }
  const auto first = observer().runs(carol, {.offset = 0, .limit = 2});
  EXPECT_THAT(ids(first, &RunRow::run), ElementsAre(made[4], made[3]));
  ASSERT_EQ(first.next, 2U);
  const auto rest = observer().runs(carol, {.offset = 2, .limit = 9});
  EXPECT_THAT(ids(rest, &RunRow::run), ElementsAre(made[2], made[1], made[0]));
  EXPECT_FALSE(rest.next);
  EXPECT_THAT(observer().runs(carol, {.offset = 99, .limit = 9}).rows, IsEmpty());
}

TEST_F(Observing, SessionsAndWhatTheyDo) {
  const auto [own, run] = boot_with_session_and_run();
  const SamplerId sampler = *try_sampler(own, alice, 5, model);
  worker().hold_answers(true);
  const RequestId first = sample(sampler, alice, 1);
  const RequestId second = sample(sampler, alice, 2);
  clock().advance(10 * kSecond);
  const auto open = observer().sessions(alice, {});
  ASSERT_THAT(open.rows, SizeIs(1));
  EXPECT_EQ(open.rows[0].session, own);
  EXPECT_TRUE(open.rows[0].alive);
  EXPECT_EQ(open.rows[0].runs, 1);
  EXPECT_EQ(open.rows[0].samplers, 1);
  EXPECT_NEAR(open.rows[0].concurrency, 2, 1e-9);
  EXPECT_NEAR(open.rows[0].busy_share, 1, 1e-9);
  EXPECT_EQ(observer().overview(alice).pending, 2);
  while (pending(alice, first) || pending(alice, second)) ASSERT_TRUE(worker().answer_next());
  clock().advance(10 * kSecond);
  EXPECT_NEAR(observer().sessions(alice, {}).rows[0].busy_share, 0.5, 1e-9);
  EXPECT_EQ(observer().overview(alice).pending, 0);
  EXPECT_THAT(observer().sessions(bob, {}).rows, IsEmpty());
  EXPECT_THAT(observer().sessions(carol, {}).rows, SizeIs(1));
  const auto samplers = observer().samplers(alice, {});
  ASSERT_THAT(samplers.rows, SizeIs(1));
  EXPECT_EQ(samplers.rows[0].sampler, sampler);
  EXPECT_EQ(samplers.rows[0].requests, 2);
  EXPECT_FALSE(samplers.rows[0].model_path);
  EXPECT_THAT(observer().samplers(bob, {}).rows, IsEmpty());
}

TEST_F(Observing, ASessionThatEndedIsStillListed) {
  const SessionId own = boot_with_session();
  ASSERT_TRUE(plane().end_session(alice, own, {}).ok());
  advance(kSecond);
  const auto ended = observer().sessions(alice, {});
  ASSERT_THAT(ended.rows, SizeIs(1));
  EXPECT_FALSE(ended.rows[0].alive);
  EXPECT_TRUE(std::isnan(ended.rows[0].busy_share));
}

TEST_F(Observing, TenantsAndTheirQuotas) {
  boot_with_run();
  create_model(bob);
  const auto own = observer().tenants(alice);
  ASSERT_THAT(own, SizeIs(1));
  EXPECT_EQ(own[0].user, alice);
  EXPECT_EQ(own[0].runs, 1);
  EXPECT_TRUE(std::isnan(own[0].engine_share));
  const auto runs = std::find_if(own[0].quotas.begin(), own[0].quotas.end(),
                                 [](const QuotaRow& row) { return row.limit == "limits.runs_per_user_max"; });
  ASSERT_NE(runs, own[0].quotas.end());
  EXPECT_EQ(runs->used, 1);
  EXPECT_EQ(runs->max, 256);
  EXPECT_THAT(own[0].quotas, SizeIs(12));
  const auto all = observer().tenants(carol);
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[1].user, bob);
}

TEST_F(Observing, CountsAreTheUsersOwn) {
  boot_with_run();
  create_model(bob);
  EXPECT_EQ(observer().overview(alice).runs, 1);
  EXPECT_FALSE(observer().overview(alice).users_active);
  const Overview all = observer().overview(carol);
  EXPECT_EQ(all.runs, 2);
  EXPECT_EQ(all.users_active, 2);
  EXPECT_TRUE(all.ready);
  ASSERT_THAT(all.models, SizeIs(1));
  EXPECT_TRUE(all.models[0].ready);
}

TEST_F(Observing, WhatIsNotReadyIsNamed) {
  boot(false);
  const Overview view = observer().overview(alice);
  EXPECT_FALSE(view.ready);
  EXPECT_THAT(view.reason, HasSubstr(model));
}

// The words of `tuft workers`, for a base model those of the worker that can do most.
TEST_F(Observing, StatesHaveTheSameWordsEverywhere) {
  config().supported_models[0].workers = 2;
  boot();
  const auto states = [this] {
    std::vector<std::string_view> found = {observer().overview(alice).models.at(0).state};
    for (const WorkerRow& row : observer().system(carol).workers) found.push_back(row.state);
    return found;
  };
  EXPECT_THAT(states(), ElementsAre("ready", "ready", "ready"));
  worker(0).die();
  EXPECT_THAT(states(), ElementsAre("ready", "dead", "ready"));
  worker(1).set_ready(false);
  EXPECT_THAT(states(), ElementsAre("silent", "dead", "silent"));
  worker(1).die();
  EXPECT_THAT(states(), ElementsAre("dead", "dead", "dead"));
}

TEST_F(Observing, TheSystemIsForOperators) {
  boot();
  const SystemView own = observer().system(alice);
  EXPECT_FALSE(own.is_whole);
  EXPECT_THAT(own.config, IsEmpty());
  EXPECT_THAT(own.workers, IsEmpty());
  ASSERT_TRUE(own.store);
  EXPECT_EQ(own.store->spans, 0U);
  EXPECT_THAT(own.limits, Not(IsEmpty()));
  const SystemView whole = observer().system(carol);
  EXPECT_TRUE(whole.is_whole);
  EXPECT_THAT(whole.config, HasSubstr("runs_per_user_max: 256"));
  EXPECT_THAT(whole.config, Not(HasSubstr("tml-alice")));
  EXPECT_EQ(whole.store->spans, 3U);
  EXPECT_THAT(whole.workers, SizeIs(1));
}

TEST_F(Observing, ATraceSaysBehindWhomItWaited) {
  boot();
  Span waited;
  waited.trace_id = "t";
  waited.span_id = "s";
  waited.name = "SCHEDULE";
  waited.owner = "alice";
  waited.start = kSecond;
  waited.duration = 4 * kSecond;
  store.kept_trace.emplace().spans = {waited};
  store.busy = {{"alice", 0.25}, {"bob", 0.75}, {"", 5.0}};
  const auto seen = observer().trace(alice, "t");
  ASSERT_TRUE(seen.ok());
  ASSERT_THAT(seen->explanation.parts, SizeIs(2));
  EXPECT_EQ(seen->explanation.parts[0].kind, PartKind::kQueueOthers);
  EXPECT_NEAR(seen->explanation.parts[0].share, 0.75, 1e-9);
  EXPECT_THAT(seen->explanation.summary, Not(HasSubstr("bob")));
  EXPECT_EQ(observer().trace(bob, "t").error().message, observer().trace(bob, "never").error().message);
}

// Each question may read for two seconds, and a trace has any number of waits.
TEST_F(Observing, AllWaitsOfATraceAreAskedAboutWithinOneBudget) {
  boot();
  store.kept_trace.emplace();
  for (int i = 0; i < 8; ++i) {
    Span waited;
    waited.trace_id = "t";
    waited.span_id = std::to_string(i);
    waited.name = "SCHEDULE";
    waited.owner = "alice";
    waited.start = i * 3600 * kSecond;
    waited.duration = 3600 * kSecond;
    store.kept_trace->spans.push_back(waited);
  }
  store.busy = {{"alice", 0.1}, {"bob", 0.3}};
  int asked = 0;
  store.on_series = [&] {
    ++asked;
    clock().advance(1500 * kMillisecond);
  };
  const auto seen = observer().trace(alice, "t");
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(asked, 2);
  // What the first two answers say is a part of the work, and a part would blame somebody.
  ASSERT_THAT(seen->explanation.parts, SizeIs(1));
  EXPECT_EQ(seen->explanation.parts[0].kind, PartKind::kSchedule);
}

}  // namespace
}  // namespace tuft::control
