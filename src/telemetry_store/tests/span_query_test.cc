// Searches of spans: filters, pages, summaries, durations and series.
#include <cmath>
#include <set>

#include <gmock/gmock.h>

#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SpanQuery : public StoreTest {};

TEST_F(SpanQuery, FindsByEachCondition) {
  BuiltSpan one{.trace = 1, .span = 10, .name = "POST /api/v1/asample", .kind = 2, .start = now() - 3 * kSecond};
  one.duration = 2 * kSecond;
  one.attributes = {{"tuft.session_id", "s1"}, {"tuft.training_run_id", "r1"},     {"tuft.sampling_session_id", "p1"},
                    {"tuft.request_id", "q1"}, {"tuft.operation_type", "asample"}, {"tuft.base_model", "llama"},
                    {"tuft.user", "alice"},    {"http.route", "/API/v1/asample"}};
  const BuiltSpan two{.trace = 2, .span = 20, .name = "GET /", .kind = 2, .start = now() - kSecond, .failed = true};
  add({one, two});
  const std::string id1 = built_trace_id(1);
  const std::string id2 = built_trace_id(2);
  EXPECT_THAT(trace_ids(kOperator, {}), ElementsAre(id2, id1));
  for (const Filter& filter : std::vector<Filter>{{.session = "s1"},
                                                  {.run = "r1"},
                                                  {.sampler = "p1"},
                                                  {.request = "q1"},
                                                  {.operation = "asample"},
                                                  {.base_model = "llama"},
                                                  {.user = "alice"},
                                                  {.name = "POST /api/v1/asample"},
                                                  {.name = "POST*"},
                                                  {.name = "none|POST /api/v1/asample"},
                                                  {.name = "none|POST*|"},
                                                  {.text = "api/V1/ASAMPLE"},
                                                  {.failed = false},
                                                  {.duration_min = kSecond},
                                                  {.time = {.from = 0, .until = now() - 2 * kSecond}}})
    EXPECT_THAT(trace_ids(kOperator, filter), ElementsAre(id1));
  for (const Filter& filter : std::vector<Filter>{
           {.failed = true}, {.duration_max = kSecond}, {.time = {.from = now() - 2 * kSecond}}, {.text = "it broke"}})
    EXPECT_THAT(trace_ids(kOperator, filter), ElementsAre(id2));
  for (const Filter& filter : std::vector<Filter>{{.session = "r1"},
                                                  {.name = "POST"},
                                                  {.name = "POST|none"},
                                                  {.name = "|"},
                                                  {.service = "other"},
                                                  {.session = "s1", .failed = true},
                                                  {.text = "nowhere"}})
    EXPECT_THAT(trace_ids(kOperator, filter), IsEmpty());
  EXPECT_THAT(trace_ids(kOperator, {.service = "tuft"}), ElementsAre(id2, id1));
}

TEST_F(SpanQuery, ComparesOnlyEntriesUnlessANameOrTextIsGiven) {
  add({{.trace = 1, .span = 1, .name = "root", .start = now(), .duration = kSecond},
       {.trace = 1, .span = 2, .parent = 1, .name = "inner", .start = now(), .failed = true},
       {.trace = 1, .span = 3, .parent = 1, .name = "served", .kind = 2, .start = now(), .duration = 5 * kSecond}});
  EXPECT_THAT(trace_ids(kOperator, {.failed = true}), IsEmpty());
  EXPECT_THAT(trace_ids(kOperator, {.duration_min = 4 * kSecond}), ElementsAre(built_trace_id(1)));
  EXPECT_THAT(trace_ids(kOperator, {.name = "inner", .failed = true}), ElementsAre(built_trace_id(1)));
}

TEST_F(SpanQuery, SummarizesTheWholeTrace) {
  const Nanos start = now() - kSecond;
  add({{.trace = 1,
        .span = 2,
        .parent = 1,
        .name = "child",
        .start = start + kMillisecond,
        .duration = kSecond,
        .failed = true,
        .attributes = {{"tuft.training_run_id", "run"}}},
       {.trace = 1, .span = 1, .name = "root", .start = start, .attributes = {{"tuft.session_id", "session"}}}});
  const auto page = store_->traces(kOperator, {.name = "child"}, {});
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->traces.size(), 1U);
  const TraceSummary& trace = page->traces[0];
  EXPECT_EQ(trace.root_name, "root");
  EXPECT_EQ(trace.root_service, "tuft");
  EXPECT_EQ(trace.root_span_id, built_span_id(1));
  EXPECT_EQ(trace.session, "session");
  EXPECT_EQ(trace.run, "run");
  EXPECT_EQ(trace.start, start);
  EXPECT_EQ(trace.duration, kSecond + kMillisecond);
  EXPECT_EQ(trace.spans, 2U);
  EXPECT_EQ(trace.failed_spans, 1U);
  EXPECT_EQ(trace.matched_span_id, built_span_id(2));
  EXPECT_EQ(trace.matched_name, "child");
  EXPECT_EQ(trace.matched_duration, kSecond);
}

TEST_F(SpanQuery, PagesShowEveryTraceOnceNewestFirst) {
  std::vector<BuiltSpan> spans;
  // Two entries in each trace, far apart, so that a trace could appear on two pages.
  for (uint64_t i = 0; i < 50; ++i) {
    spans.push_back({.trace = i + 1, .span = i + 1, .start = now() - kSecond + static_cast<Nanos>(i)});
    spans.push_back({.trace = i + 1, .span = i + 100, .start = now() - 2 * kSecond + static_cast<Nanos>(i)});
  }
  add(spans);
  std::set<std::string> seen;
  Nanos last = now();
  std::string cursor;
  do {
    const auto page = store_->traces(kOperator, {}, {.limit = 7, .cursor = cursor});
    ASSERT_TRUE(page.ok());
    for (const TraceSummary& trace : page->traces) {
      EXPECT_TRUE(seen.insert(trace.trace_id).second) << trace.trace_id;
      EXPECT_EQ(trace.spans, 2U);
      EXPECT_LE(trace.start, last);
      last = trace.start;
    }
    cursor = page->next;
  } while (!cursor.empty());
  EXPECT_EQ(seen.size(), 50U);
}

TEST_F(SpanQuery, RefusesWhatItDoesNotUnderstand) {
  for (const char* cursor : {"x", "1-2", "1-2-3-4", "1-2-zz", "--"}) {
    const auto page = store_->traces(kOperator, {}, {.cursor = cursor});
    ASSERT_FALSE(page.ok());
    EXPECT_EQ(page.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(store_->traces(kOperator, {.time = {.from = 2, .until = 1}}, {}).ok());
  EXPECT_FALSE(store_->traces(kOperator, {.text = std::string(2000, 'x')}, {}).ok());
  EXPECT_FALSE(store_->trace(kOperator, "abc", 10).ok());
  EXPECT_FALSE(
      store_->span_series(kOperator, {.time = {.from = now() - kSecond}}, SpanFunction::kCount, "host", kSecond).ok());
  EXPECT_FALSE(store_->span_series(kOperator, {}, SpanFunction::kCount, "", kSecond).ok());
  EXPECT_FALSE(store_->span_series(kOperator, {.time = {.from = now() - kSecond}}, SpanFunction::kCount, "", 0).ok());
}

TEST_F(SpanQuery, CountsDurations) {
  add({{.trace = 1, .span = 1, .start = now(), .duration = kMillisecond},
       {.trace = 2, .span = 2, .start = now(), .duration = kMillisecond, .failed = true},
       {.trace = 3, .span = 3, .start = now(), .duration = 5000 * kSecond}});
  const auto histogram = store_->durations(kOperator, {});
  ASSERT_TRUE(histogram.ok());
  ASSERT_EQ(histogram->counts.size(), histogram->bounds.size() + 1);
  const auto bucket = static_cast<size_t>(
      std::lower_bound(histogram->bounds.begin(), histogram->bounds.end(), kMillisecond) - histogram->bounds.begin());
  EXPECT_EQ(histogram->counts[bucket], 2U);
  EXPECT_EQ(histogram->failed[bucket], 1U);
  EXPECT_EQ(histogram->counts.back(), 1U);
}

TEST_F(SpanQuery, MakesSeries) {
  const Nanos start = now() - 3 * kSecond;
  std::vector<BuiltSpan> spans;
  for (uint64_t i = 1; i <= 100; ++i)
    spans.push_back({.trace = i,
                     .span = i,
                     .name = i <= 90 ? "many" : "few",
                     .start = start + kMillisecond,
                     .duration = static_cast<Nanos>(i) * kMillisecond,
                     .failed = i == 7});
  add(spans);
  const Filter filter{.time = {.from = start, .until = start + 2 * kSecond}};
  const auto series = [&](SpanFunction function, std::string_view by) {
    const auto found = store_->span_series(kOperator, filter, function, by, kSecond);
    EXPECT_TRUE(found.ok());
    return *found;
  };
  const SpanSeries counts = series(SpanFunction::kCount, "name");
  EXPECT_EQ(counts.start, start);
  ASSERT_EQ(counts.series.size(), 2U);
  EXPECT_EQ(counts.series[0].first, "many");
  EXPECT_THAT(counts.series[0].second, ElementsAre(90, 0));
  EXPECT_THAT(counts.series[1].second, ElementsAre(10, 0));
  EXPECT_THAT(series(SpanFunction::kErrors, "").series[0].second, ElementsAre(1, 0));
  EXPECT_NEAR(series(SpanFunction::kP50, "").series[0].second[0], 0.050, 1e-6);
  EXPECT_NEAR(series(SpanFunction::kP99, "").series[0].second[0], 0.099, 1e-6);
  EXPECT_NEAR(series(SpanFunction::kMean, "").series[0].second[0], 0.0505, 1e-6);
  EXPECT_NEAR(series(SpanFunction::kBusy, "").series[0].second[0], 5.05, 1e-5);
  EXPECT_TRUE(std::isnan(series(SpanFunction::kMean, "").series[0].second[1]));
}

TEST_F(SpanQuery, ReadsOneTraceWithItsLogsAndLinks) {
  add({{.trace = 1, .span = 2, .parent = 1, .name = "child", .start = now() - kSecond, .attributes = {{"k", "v\xff"}}},
       {.trace = 1, .span = 1, .name = "root", .start = now() - 2 * kSecond},
       {.trace = 9, .span = 90, .name = "pass", .start = now(), .links = {{1, 2}, {3, 4}}}});
  add(std::vector<BuiltLog>{{.time = now(), .body = "hello", .trace = 1, .span = 2}, {.time = now(), .body = "other"}});
  const auto trace = store_->trace(kOperator, built_trace_id(1), 100);
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->spans.size(), 2U);
  EXPECT_EQ(trace->spans[0].name, "root");
  EXPECT_EQ(trace->spans[1].parent_id, built_span_id(1));
  EXPECT_EQ(trace->spans[1].attributes.at(0).value, "v\xef\xbf\xbd");
  ASSERT_EQ(trace->logs.size(), 1U);
  EXPECT_EQ(trace->logs[0].body, "hello");
  ASSERT_EQ(trace->linked_from.size(), 1U);
  EXPECT_EQ(trace->linked_from[0].trace_id, built_trace_id(9));
  EXPECT_EQ(trace->linked_from[0].name, "pass");
  EXPECT_EQ(trace->linked_from[0].to_span_id, built_span_id(2));
  EXPECT_FALSE(trace->truncated);
  EXPECT_EQ(store_->trace(kOperator, built_trace_id(9), 100)->spans.at(0).links.size(), 2U);

  const auto cut = store_->trace(kOperator, built_trace_id(1), 1);
  ASSERT_TRUE(cut.ok());
  EXPECT_TRUE(cut->truncated);
  EXPECT_EQ(cut->spans.at(0).name, "root");
  EXPECT_EQ(store_->trace(kOperator, built_trace_id(77), 1).error().code, ErrorCode::kNotFound);
}

// A clock that moves a second with every look.
class HurryingClock final : public Clock {
 public:
  Nanos monotonic() const override { return now_ += kSecond; }
  Nanos wall() const override { return 1'700'000'000 * kSecond; }

 private:
  mutable std::atomic<Nanos> now_ = 0;
};

TEST(SpanQueryDeadline, StopsAQueryThatTakesTooLongAndSaysHowToNarrowIt) {
  const HurryingClock clock;
  const auto store = Store::open({.memory_bytes_max = 4 << 20}, clock);
  for (uint64_t i = 1; i < 300; ++i) {
    BuiltSpan span{.trace = i, .span = i, .start = clock.wall(), .attributes = {{"filler", std::string(4000, 'x')}}};
    store->add(RecordType::kSpans, build_spans({span}), {});
    ASSERT_TRUE(store->settle(10 * kSecond));
  }
  const auto found = store->durations({.all = true}, {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument)
      << "whoever asks for too much raises no alarm of the server";
  EXPECT_EQ(found.error().reason, "query_too_large");
  EXPECT_THAT(found.error().message, ::testing::HasSubstr("shorter time"));
}

}  // namespace
}  // namespace tuft::telemetry_store
