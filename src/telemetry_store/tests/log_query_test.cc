// Searches of log records: filters, pages and following.
#include <gmock/gmock.h>

#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LogQueries : public StoreTest {};

TEST_F(LogQueries, FindsByEachCondition) {
  add(std::vector<BuiltLog>{{.time = now() - kSecond,
                             .severity = 17,
                             .event = "run.failed",
                             .body = "The Run failed",
                             .trace = 4,
                             .span = 2,
                             .attributes = {{"tuft.training_run_id", "r"}, {"reason", "Out of Memory"}}},
                            {.time = now(), .severity = 9, .event = "run.created", .body = "a run was created"}});
  for (const LogQuery& query : std::vector<LogQuery>{{.filter = {.run = "r"}},
                                                     {.filter = {.name = "run.failed"}},
                                                     {.filter = {.name = "run.f*"}},
                                                     {.filter = {.text = "the run FAILED"}},
                                                     {.filter = {.text = "out of mem"}},
                                                     {.filter = {.failed = true}},
                                                     {.filter = {.time = {.from = 0, .until = now()}}},
                                                     {.severity_min = 13},
                                                     {.trace_id = built_trace_id(4)},
                                                     {.span_id = built_span_id(2)}})
    EXPECT_THAT(bodies(kOperator, query), ElementsAre("The Run failed"));
  EXPECT_THAT(bodies(kOperator, {}), ElementsAre("a run was created", "The Run failed"));
  EXPECT_THAT(bodies(kOperator, {.filter = {.text = "nowhere"}}), IsEmpty());
  const auto page = store_->logs(kOperator, {.severity_min = 17});
  ASSERT_EQ(page->logs.size(), 1U);
  EXPECT_EQ(page->logs[0].event, "run.failed");
  EXPECT_EQ(page->logs[0].trace_id, built_trace_id(4));
  EXPECT_EQ(page->logs[0].severity, 17);
  EXPECT_EQ(page->logs[0].scope, "scope");
}

TEST_F(LogQueries, PagesShowEveryRecordOnce) {
  std::vector<BuiltLog> logs;
  for (int i = 0; i < 50; ++i) logs.push_back({.time = now() + i / 10, .body = std::to_string(i)});
  add(logs);
  std::vector<std::string> seen;
  LogQuery query{.page = {.limit = 7}};
  do {
    const auto page = store_->logs(kOperator, query);
    ASSERT_TRUE(page.ok());
    for (const LogRecord& log : page->logs) seen.push_back(log.body);
    query.page.cursor = page->next;
  } while (!query.page.cursor.empty());
  ASSERT_EQ(seen.size(), 50U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], std::to_string(49 - i));
}

TEST_F(LogQueries, FollowsWhatComesLater) {
  add(std::vector<BuiltLog>{{.time = now(), .body = "before"}});
  const auto first = store_->logs(kOperator, {});
  // A record that comes later may have an earlier time.
  add(std::vector<BuiltLog>{
      {.time = now() - kSecond, .body = "1"}, {.time = now(), .body = "2"}, {.time = now(), .body = "3"}});
  const auto second = store_->logs(kOperator, {.page = {.limit = 2}, .after = first->newest});
  ASSERT_EQ(second->logs.size(), 2U);
  EXPECT_EQ(second->logs[0].body, "1");
  EXPECT_EQ(second->logs[1].body, "2");
  EXPECT_THAT(bodies(kOperator, {.after = second->newest}), ElementsAre("3"));
  const auto third = store_->logs(kOperator, {.after = second->newest});
  EXPECT_THAT(bodies(kOperator, {.after = third->newest}), IsEmpty());
}

TEST_F(LogQueries, WhatCameTogetherIsInTheOrderOfTime) {
  const auto first = store_->logs(kOperator, {});
  add(std::vector<BuiltLog>{{.time = now() + 1, .body = "of a thread"},
                            {.time = now() + 3, .body = "of this one, too"}});
  add(std::vector<BuiltLog>{{.time = now() + 2, .body = "of another one"}});
  const auto page = store_->logs(kOperator, {.after = first->newest});
  std::vector<std::string> seen;
  for (const LogRecord& log : page->logs) seen.push_back(log.body);
  EXPECT_THAT(seen, ElementsAre("of a thread", "of another one", "of this one, too"));
}

TEST_F(LogQueries, RefusesWhatItDoesNotUnderstand) {
  EXPECT_FALSE(store_->logs(kOperator, {.filter = {.duration_min = 1}}).ok());
  EXPECT_FALSE(store_->logs(kOperator, {.trace_id = "12"}).ok());
  EXPECT_FALSE(store_->logs(kOperator, {.span_id = "xyz"}).ok());
  EXPECT_FALSE(store_->logs(kOperator, {.after = "?"}).ok());
  EXPECT_FALSE(store_->logs(kOperator, {.page = {.cursor = "1-1-1"}, .after = "1-1-1"}).ok());
}

// Both ways of a text search: the whole segment at once, and record by record.
TEST_F(LogQueries, SearchesTextInManyRecords) {
  std::vector<BuiltLog> logs;
  for (int i = 0; i < 1000; ++i) {
    BuiltLog log{.time = now() + i, .body = "line " + std::to_string(i)};
    log.attributes = {{"tuft.session_id", i % 100 == 0 ? "rare" : "often"}, {"needle-as-a-key", "x"}};
    if (i % 250 == 0) log.body += " NeedLe";
    logs.push_back(log);
  }
  add(logs);
  EXPECT_THAT(bodies(kOperator, {.filter = {.text = "needle"}}),
              ElementsAre("line 750 NeedLe", "line 500 NeedLe", "line 250 NeedLe", "line 0 NeedLe"));
  EXPECT_THAT(bodies(kOperator, {.filter = {.session = "rare", .text = "needle"}}),
              ElementsAre("line 500 NeedLe", "line 0 NeedLe"));
}

}  // namespace
}  // namespace tuft::telemetry_store
