// No query shows a user what belongs to another user or to nobody, even inside of one trace.
#include <gmock/gmock.h>

#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Isolation : public StoreTest {
 protected:
  Isolation() {
    options_.owner_of = [](std::string_view session) {
      return session == "session-of-alice" ? "alice" : session == "session-of-bob" ? "bob" : "";
    };
  }

  void SetUp() override {
    StoreTest::SetUp();
    // One trace with records of everybody. Each owner is known in another way.
    add({span(1, 0, "of-alice", {{"tuft.session_id", "session-of-alice"}, {"secret", "alice's"}}),
         span(2, 1, "of-bob", {{"tuft.user", "bob"}, {"secret", "bob's"}}), span(3, 1, "of-nobody", {})});
    add({span(4, 1, "of-bobs-program", {{"tuft.user", "alice"}})}, {.owner = "bob"});
    BuiltSpan pass{.trace = 2, .span = 20, .name = "pass", .start = now(), .links = {{1, 1}}};
    add({pass});
    BuiltSpan bobs_link{.trace = 3, .span = 30, .name = "bobs-link", .start = now(), .links = {{1, 1}}};
    bobs_link.attributes = {{"tuft.user", "bob"}};
    add({bobs_link});
    add(std::vector<BuiltLog>{
        {.time = now(), .body = "log of alice", .trace = 1, .span = 1, .attributes = {{"tuft.user", "alice"}}},
        {.time = now(), .body = "log of bob", .trace = 1, .span = 1, .attributes = {{"tuft.user", "bob"}}},
        {.time = now(), .body = "log of nobody", .trace = 1, .span = 1}});
    add(std::vector<BuiltMetric>{{.name = "shared", .value = 1, .labels = {{"tenant", "alice"}}},
                                 {.name = "shared", .value = 2, .labels = {{"tenant", "bob"}}},
                                 {.name = "shared", .value = 4},
                                 {.name = "internal", .value = 8}});
    add(
        std::vector<BuiltMetric>{
            {.name = "mine", .value = 3, .labels = {{"tenant", "alice"}}, .exemplar_trace = 5, .exemplar_time = now()}},
        {.owner = "bob"});
    store_->add_step({.run = "run-of-bob", .owner = "bob", .step = 1, .time = now()});
    ASSERT_TRUE(store_->settle(kSecond));
    clock_.advance(kSecond);
  }

  BuiltSpan span(uint64_t id, uint64_t parent, std::string name, BuiltAttributes attributes) const {
    return {.trace = 1,
            .span = id,
            .parent = parent,
            .name = std::move(name),
            .kind = 2,
            .start = now(),
            .failed = true,
            .attributes = std::move(attributes)};
  }

  std::vector<std::string> names_in_trace(const Viewer& viewer, uint64_t trace) {
    std::vector<std::string> names;
    const auto found = store_->trace(viewer, built_trace_id(trace), 100);
    if (!found.ok()) return names;
    for (const Span& span : found->spans) names.push_back(span.name);
    return names;
  }
};

TEST_F(Isolation, OfATrace) {
  EXPECT_THAT(names_in_trace(kAlice, 1), ElementsAre("of-alice"));
  EXPECT_THAT(names_in_trace(kBob, 1), ElementsAre("of-bob", "of-bobs-program"));
  EXPECT_EQ(names_in_trace(kOperator, 1).size(), 4U);
  const auto alice = store_->trace(kAlice, built_trace_id(1), 100);
  ASSERT_EQ(alice->logs.size(), 1U);
  EXPECT_EQ(alice->logs[0].body, "log of alice");
  EXPECT_THAT(alice->linked_from, IsEmpty());
  ASSERT_EQ(store_->trace(kBob, built_trace_id(1), 100)->linked_from.size(), 1U);
  EXPECT_EQ(store_->trace(kBob, built_trace_id(1), 100)->linked_from[0].name, "bobs-link");
  EXPECT_EQ(store_->trace(kOperator, built_trace_id(1), 100)->linked_from.size(), 2U);
  // Another's trace and one that does not exist look the same.
  const auto of_bob = store_->trace(kAlice, built_trace_id(3), 100);
  const auto missing = store_->trace(kAlice, built_trace_id(99), 100);
  ASSERT_FALSE(of_bob.ok());
  EXPECT_EQ(of_bob.error().message, missing.error().message);
  EXPECT_EQ(of_bob.error().code, ErrorCode::kNotFound);
}

TEST_F(Isolation, OfListsAndTheirCounts) {
  EXPECT_THAT(trace_ids(kAlice, {}), ElementsAre(built_trace_id(1)));
  const auto page = store_->traces(kAlice, {}, {});
  EXPECT_EQ(page->traces[0].spans, 1U);
  EXPECT_EQ(page->traces[0].failed_spans, 1U);
  EXPECT_EQ(page->traces[0].root_name, "of-alice");
  EXPECT_EQ(page->traces[0].owner, "alice");
  // Bob does not see the root, and not that it is the root.
  EXPECT_EQ(store_->traces(kBob, {.name = "of-bob"}, {})->traces[0].root_name, "of-bob");
  for (const Filter& filter : std::vector<Filter>{{.user = "bob"},
                                                  {.name = "of-bob"},
                                                  {.name = "of-n*"},
                                                  {.text = "bob"},
                                                  {.text = "of-nobody"},
                                                  {.name = "pass"}})
    EXPECT_THAT(trace_ids(kAlice, filter), IsEmpty());
}

// Bob knows the id of alice's trace, and adds spans to it as long as he likes.
TEST_F(Isolation, NobodyTakesTheRowOfATraceFromItsOwner) {
  clock_.advance(60 * kSecond);
  add({{.trace = 9,
        .span = 90,
        .name = "request",
        .kind = 2,
        .start = now(),
        .duration = kMillisecond,
        .attributes = {{"tuft.user", "alice"}, {"tuft.request_id", "alices"}}}});
  const auto row = [this](const Filter& filter) {
    const auto page = store_->traces(kOperator, filter, {.limit = 1});
    EXPECT_TRUE(page.ok());
    EXPECT_EQ(page->traces.at(0).trace_id, built_trace_id(9));
    const TraceSummary& found = page->traces.at(0);
    return found.owner + "/" + found.root_name + "/" + found.request + "/" + found.matched_name;
  };
  for (uint64_t turn = 1; turn <= 3; ++turn) {
    EXPECT_EQ(row({}), "alice/request/alices/request");
    clock_.advance(kSecond);
    const BuiltSpan bobs{.trace = 9,
                         .span = 900 + turn,
                         .name = "bobs",
                         .kind = 2,
                         // A program says what it likes, also that it was there before.
                         .start = turn == 2 ? now() - 50 * kSecond : now(),
                         .attributes = {{"tuft.user", "bob"}, {"tuft.request_id", "bobs"}}};
    add({bobs}, turn == 3 ? Source{} : Source{.owner = "bob"});
  }
  EXPECT_EQ(row({}), "alice/request/alices/request");
  EXPECT_EQ(store_->traces(kOperator, {}, {.limit = 1})->traces[0].spans, 4U);
  EXPECT_EQ(row({.user = "bob"}), "bob/bobs/bobs/bobs");
  EXPECT_EQ(row({.name = "bobs"}), "bob/bobs/bobs/bobs");
}

TEST_F(Isolation, OfDurationsAndSeries) {
  const auto count = [this](const Viewer& viewer) {
    const auto histogram = store_->durations(viewer, {.name = "of-*"});
    uint64_t all = 0;
    for (const uint64_t one : histogram->counts) all += one;
    return all;
  };
  EXPECT_EQ(count(kAlice), 1U);
  EXPECT_EQ(count(kBob), 2U);
  EXPECT_EQ(count(kOperator), 4U);
  const Filter filter{.time = {.from = now() - 10 * kSecond}, .name = "*"};
  for (const char* by : {"", "name", "user", "operation", "base_model"}) {
    const auto series = store_->span_series(kAlice, filter, SpanFunction::kCount, by, 20 * kSecond);
    ASSERT_EQ(series->series.size(), 1U) << by;
    EXPECT_THAT(series->series[0].second, ElementsAre(1)) << by;
    EXPECT_THAT(series->series[0].first, ::testing::Not(::testing::HasSubstr("bob")));
  }
}

TEST_F(Isolation, OfLogs) {
  EXPECT_THAT(bodies(kAlice, {}), ElementsAre("log of alice"));
  EXPECT_THAT(bodies(kAlice, {.filter = {.text = "log of"}}), ElementsAre("log of alice"));
  EXPECT_THAT(bodies(kAlice, {.filter = {.user = "bob"}}), IsEmpty());
  EXPECT_THAT(bodies(kAlice, {.trace_id = built_trace_id(1)}), ElementsAre("log of alice"));
  EXPECT_THAT(bodies(kAlice, {.after = "0-0-0"}), ElementsAre("log of alice"));
  EXPECT_EQ(bodies(kOperator, {}).size(), 3U);
}

TEST_F(Isolation, OfMetrics) {
  const std::vector<MetricInfo> of_alice = store_->metrics(kAlice);
  ASSERT_EQ(of_alice.size(), 1U);
  EXPECT_EQ(of_alice[0].name, "shared");
  EXPECT_THAT(of_alice[0].labels.at("tenant"), ElementsAre("alice"));
  const TimeRange time{.from = now() - 10 * kSecond};
  ASSERT_EQ(
      store_->metric(kOperator, {.name = "shared", .time = time, .step = 20 * kSecond})->series.at(0).points.back(), 7);
  const auto shared = store_->metric(kAlice, {.name = "shared", .time = time, .step = 20 * kSecond});
  ASSERT_TRUE(shared.ok());
  EXPECT_EQ(shared->series.at(0).points.back(), 1);
  EXPECT_FALSE(store_->metric(kAlice, {.name = "internal", .time = time}).ok());
  // A label that a program chose does not make its series another user's.
  EXPECT_FALSE(store_->metric(kAlice, {.name = "mine", .time = time}).ok());
  EXPECT_THAT(store_->exemplars(kAlice, {.name = "mine", .time = time}), IsEmpty());
  EXPECT_EQ(store_->exemplars(kBob, {.name = "mine", .time = time}).size(), 1U);
  EXPECT_TRUE(store_->metric(kBob, {.name = "mine", .time = time}).ok());
  EXPECT_THAT(store_->metric(kAlice, {.name = "shared", .where = {{"tenant", "bob"}}, .time = time}).ok(), false);
}

TEST_F(Isolation, OfRunSteps) {
  EXPECT_THAT(store_->steps(kAlice, "run-of-bob", 0, 10), IsEmpty());
  EXPECT_EQ(store_->steps(kBob, "run-of-bob", 0, 10).size(), 1U);
  EXPECT_EQ(store_->steps(kOperator, "run-of-bob", 0, 10).size(), 1U);
}

TEST_F(Isolation, AViewerWithoutANameSeesNothing) {
  const Viewer nameless;
  EXPECT_THAT(trace_ids(nameless, {.name = "*"}), IsEmpty());
  EXPECT_THAT(names_in_trace(nameless, 1), IsEmpty());
  EXPECT_THAT(bodies(nameless, {}), IsEmpty());
  EXPECT_THAT(store_->metrics(nameless), IsEmpty());
  store_->add_step({.run = "nobodys", .step = 1});
  ASSERT_TRUE(store_->settle(kSecond));
  EXPECT_THAT(store_->steps(nameless, "nobodys", 0, 10), IsEmpty());
}

TEST_F(Isolation, ASessionThatBecomesKnownGivesLaterRecordsAnOwner) {
  std::string owner;
  options_.owner_of = [&owner](std::string_view) { return owner; };
  reopen();
  add({{.trace = 5, .span = 5, .start = now(), .attributes = {{"tuft.session_id", "s"}}}});
  owner = "alice";
  add({{.trace = 6, .span = 6, .start = now(), .attributes = {{"tuft.session_id", "s"}}}});
  EXPECT_THAT(trace_ids(kAlice, {}), ElementsAre(built_trace_id(6)));
}

TEST_F(Isolation, ANameThatIsTooLongToCompareIsNobodys) {
  const std::string longest(512, 'x');
  add({{.trace = 7, .span = 7, .start = now(), .attributes = {{"tuft.user", longest + "y"}}}});
  EXPECT_THAT(trace_ids({.user = longest}, {}), IsEmpty());
  EXPECT_THAT(trace_ids({.user = longest + "z"}, {}), IsEmpty());
}

}  // namespace
}  // namespace tuft::telemetry_store
