// What a user with a valid key can make the store do with records that nobody expects.
#include <algorithm>
#include <filesystem>
#include <limits>

#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

const Source kOfAlice{.owner = "alice"};
const Source kOfBob{.owner = "bob"};

size_t files_in(const std::filesystem::path& directory, std::string_view extension) {
  return static_cast<size_t>(std::count_if(std::filesystem::directory_iterator(directory),
                                           std::filesystem::directory_iterator(),
                                           [&](const auto& entry) { return entry.path().extension() == extension; }));
}

using Abuse = StoreTest;
using AbuseOnDisk = StoreOnDiskTest;

// Two bytes of a span can be a link, which takes a hundred as an object.
TEST_F(AbuseOnDisk, TraceOfManySmallPartsIsCutByTheMemoryThatItTakes) {
  for (uint64_t i = 1; i <= 400; ++i) {
    BuiltSpan span{.span = i, .start = now() - kSecond + static_cast<Nanos>(i), .links = {}};
    span.links.assign(4'000, {.trace = 7, .span = 7});
    store_->add(RecordType::kSpans, build_spans({span}), kOfAlice);
    if (i % 16 == 0) {
      ASSERT_TRUE(store_->settle(10 * kSecond));
    }
  }
  const auto found = store_->trace(kAlice, built_trace_id(1), 10'000);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->truncated);
  EXPECT_GT(found->spans.size(), 10u);
  EXPECT_LE(found->memory_bytes, size_t{64} << 20);
  EXPECT_GT(found->memory_bytes, found->spans.size() * 4'000 * sizeof(Link));
}

TEST_F(AbuseOnDisk, PageOfLongLogRecordsIsShorter) {
  for (int i = 0; i < 30; ++i) {
    BuiltLog log{.time = now() - kSecond + i, .event = std::to_string(i)};
    for (int attribute = 0; attribute < 60; ++attribute)
      log.attributes.emplace_back("k" + std::to_string(attribute), std::string(15'000, '\x01'));
    add({log}, kOfAlice);
  }
  std::vector<std::string> seen;
  LogQuery query;
  query.page.limit = 1'000;
  size_t pages = 0;
  do {
    const auto page = store_->logs(kAlice, query);
    ASSERT_TRUE(page.ok());
    EXPECT_LE(page->logs.size(), 20u);
    for (const LogRecord& log : page->logs) seen.push_back(log.event);
    query.page.cursor = page->next;
  } while (!query.page.cursor.empty() && ++pages < 50);
  ASSERT_EQ(seen.size(), 30u) << "every record is on one of the pages";
  EXPECT_EQ(seen.front(), "29");
  EXPECT_EQ(seen.back(), "0");

  seen.clear();
  query = {};
  query.page.limit = 1'000;
  query.after = "0-0-0";
  for (pages = 0; pages < 50; ++pages) {
    const auto page = store_->logs(kAlice, query);
    ASSERT_TRUE(page.ok()) << page.error().message;
    if (page->logs.empty()) break;
    EXPECT_LE(page->logs.size(), 20u);
    for (const LogRecord& log : page->logs) seen.push_back(log.event);
    query.after = page->newest;
  }
  ASSERT_EQ(seen.size(), 30u) << "following leaves none out";
  EXPECT_EQ(seen.front(), "0");
}

// The number of segments is limited, so that small ones would push out what others have recorded.
TEST_F(AbuseOnDisk, ManyServicesOfAUserFillNoSegments) {
  for (int i = 0; i < 20'000; ++i) {
    store_->add(RecordType::kSpans, build_spans({{.trace = 1, .start = now()}}, "service" + std::to_string(i)),
                kOfAlice);
    if (i % 1'000 == 0) {
      ASSERT_TRUE(store_->settle(10 * kSecond));
    }
  }
  ASSERT_TRUE(store_->settle(10 * kSecond));
  EXPECT_EQ(store_->state().spans, 20'000u);
  store_.reset();
  EXPECT_LE(files_in(options_.directory, ".seg"), 2u);
  reopen();
  EXPECT_EQ(store_->state().spans, 20'000u);
  EXPECT_EQ(trace_ids(kAlice, {.service = "service17"}).size(), 1u) << "the first ones keep their names";
  EXPECT_TRUE(trace_ids(kBob, {}).empty());
}

TEST_F(Abuse, DurationEndsInTheNearFuture) {
  BuiltSpan span{.start = 0, .duration = std::numeric_limits<Nanos>::max()};
  add({span}, kOfAlice);
  span.trace = 2;
  span.start = now() - 5;
  span.duration = std::numeric_limits<Nanos>::max() - span.start;
  add({span}, kOfAlice);
  const auto page = store_->traces(kAlice, {}, {});
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->traces.size(), 2u);
  for (const TraceSummary& trace : page->traces) {
    EXPECT_GE(trace.duration, 0);
    EXPECT_LE(trace.start + trace.duration, now() + 3600 * kSecond);
    const auto whole = store_->trace(kAlice, trace.trace_id, 10);
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(whole->spans[0].start, trace.start) << "a trace and the list of traces agree";
    EXPECT_EQ(whole->spans[0].duration, trace.duration);
  }
}

TEST_F(Abuse, MetricsOfUsersDoNotMixWithThoseOfTheServer) {
  using Kind = BuiltMetric::Kind;
  add({{.name = "tuft.pending", .kind = Kind::kGauge, .value = 3, .labels = {{"tenant", "alice"}}}});
  add({{.name = "tuft.pending", .kind = Kind::kGauge, .value = 1'000}}, kOfAlice);
  const MetricQuery query{.name = "tuft.pending", .time = {now() - 60 * kSecond, now() + 1}, .step = 61 * kSecond};
  const auto seen = store_->metric(kOperator, query);
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->series.size(), 1u);
  EXPECT_EQ(seen->series[0].points.back(), 3) << "an operator sees the server's";
  const auto own = store_->metric(
      kOperator, {.name = "tuft.pending", .where = {{"service", "tuft"}}, .time = query.time, .step = query.step});
  ASSERT_TRUE(own.ok()) << "a user's can be asked for by its labels";
  EXPECT_EQ(own->series.at(0).points.back(), 1'000);
}

// One user's series may take an eighth of the memory for metrics, and cost others nothing.
TEST_F(Abuse, MetricsOfAUserPushOutNothing) {
  options_.memory_bytes_max = 8 << 20;
  reopen();
  const Nanos begin = now();
  const auto feed = [&](int series, const Source& source) {
    std::vector<BuiltMetric> metrics;
    for (int i = 0; i < series; ++i) {
      metrics.push_back({.name = "m" + std::to_string(i), .value = static_cast<double>(clock_.wall() % 1'000'007 + i)});
    }
    add(metrics, source);
  };
  for (int i = 0; i < 1'800; ++i) {
    clock_.advance(kSecond);
    if (i % 10 == 0) feed(5, {});
    if (i % 10 == 3) feed(5, kOfBob);
    feed(500, kOfAlice);
  }
  EXPECT_LE(store_->state().memory_bytes, uint64_t{4} << 20);
  for (const Viewer& viewer : {kOperator, kBob}) {
    const auto whole =
        store_->metric(viewer, {.name = "m1", .time = {begin, begin + 300 * kSecond}, .step = 10 * kSecond});
    ASSERT_TRUE(whole.ok());
    const auto& points = whole->series.at(0).points;
    EXPECT_GE(std::count_if(points.begin(), points.end(), [](double value) { return value == value; }), 28)
        << "what others reported at the beginning is still there in full";
  }
}

// The server's own records find room however much a user sends at once.
TEST_F(AbuseOnDisk, BurstOfAUserDropsNothingOfTheServer) {
  std::vector<BuiltSpan> spans;
  for (uint64_t i = 1; i <= 200; ++i) spans.push_back({.trace = 7, .span = i, .start = now()});
  const std::string burst = build_spans(spans, "loop");
  for (BuiltSpan& span : spans) span.trace = 8;
  const std::string own = build_spans(spans);
  size_t refused = 0;
  for (int i = 0; i < 10; ++i) {
    for (int again = 0; again < 2'000; ++again) refused += store_->add(RecordType::kSpans, burst, kOfAlice) ? 0 : 1;
    EXPECT_TRUE(store_->add(RecordType::kSpans, own, {}));
  }
  ASSERT_TRUE(store_->settle(60 * kSecond));
  EXPECT_GT(refused, 0u) << "the queue was full";
  const auto trace = store_->trace(kOperator, built_trace_id(8), 10'000);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->spans.size(), 10u * 200u);
}

TEST_F(Abuse, CursorOfAnyTimeIsRefusedOrEndsTheList) {
  add({BuiltLog{.time = now()}});
  for (const char* cursor : {"7fffffffffffffff-0-0", "ffffffffffffffff-ffffffffffffffff-ffffffffffffffff",
                             "3fffffffffffffff-0-0", "0-0-0", "--", "0-0-0-0", "x"}) {
    LogQuery query;
    query.page.cursor = cursor;
    const auto logs = store_->logs(kOperator, query);
    const auto traces = store_->traces(kOperator, {}, {.cursor = cursor});
    EXPECT_TRUE(logs.ok() || logs.error().code == ErrorCode::kInvalidArgument) << cursor;
    EXPECT_EQ(logs.ok(), traces.ok()) << cursor;
  }
}

TEST_F(AbuseOnDisk, ProgramThatSaysItIsTheServerIsToldApart) {
  store_->add(RecordType::kSpans, build_spans({{.trace = 1, .name = "engine.pass", .start = now()}}, "tuft-prod"), {});
  store_->add(RecordType::kSpans, build_spans({{.trace = 2, .name = "engine.pass", .start = now()}}, "tuft-prod"),
              kOfAlice);
  store_->add(RecordType::kSpans, build_spans({{.trace = 3, .name = "engine.pass", .start = now()}}, "tuft"), kOfAlice);
  ASSERT_TRUE(store_->settle(10 * kSecond));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(trace_ids(kOperator, {.service = "tuft-prod"}), std::vector{built_trace_id(1)});
    EXPECT_TRUE(trace_ids(kOperator, {.service = "tuft"}).empty());
    EXPECT_EQ(trace_ids(kOperator, {.service = "tuft (program)"}).size(), 2u);
    EXPECT_EQ(trace_ids(kOperator, {.name = "engine.*", .of_server = true}), std::vector{built_trace_id(1)});
    reopen();
  }
}

// While series are read nothing can be added.
TEST_F(Abuse, QueryOfManySeriesWithManyBucketsEndsSoon) {
  const auto feed = [this](double value) {
    std::vector<BuiltMetric> metrics;
    for (int i = 0; i < 500; ++i) {
      BuiltMetric metric{.name = "h", .kind = BuiltMetric::Kind::kHistogram, .delta = true, .value = value};
      for (int bound = 0; bound < 200; ++bound) metric.bounds.push_back(bound);
      metric.counts.assign(201, 1);
      metric.labels = {{"series", std::to_string(i)}};
      metrics.push_back(std::move(metric));
    }
    add(metrics, kOfAlice);
  };
  for (int i = 0; i < 50; ++i) {
    clock_.advance(10 * kSecond);
    feed(i);
  }
  const auto found = store_->metric(kAlice, {.name = "h",
                                             .function = MetricFunction::kP99,
                                             .by = {"series"},
                                             .time = {now() - 1'900 * kSecond, now()},
                                             .step = kSecond});
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->truncated);
  EXPECT_LE(found->series.size(), 20u);
  EXPECT_EQ(store_->metrics(kAlice).size(), 1u);
  EXPECT_TRUE(store_->metrics(kBob).empty());
}

// Whoever knows the id of a trace can send spans with it.
TEST_F(Abuse, SpansOfAProgramDoNotDescribeTheTraceOfAnotherUser) {
  const BuiltAttributes of_bob = {{"tuft.user", "bob"}, {"tuft.operation_type", "sample"}};
  add({BuiltSpan{.span = 1, .name = "POST", .kind = 2, .start = now(), .attributes = of_bob}});
  add({BuiltSpan{.span = 2,
                 .name = "intruder",
                 .start = now() - 10 * kSecond,
                 .duration = 20 * kSecond,
                 .attributes = {{"tuft.session_id", "intruder"}}}},
      kOfAlice);
  const auto page = store_->traces(kOperator, {.user = "bob"}, {});
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->traces.size(), 1u);
  const TraceSummary& trace = page->traces[0];
  EXPECT_EQ(trace.root_name, "POST");
  EXPECT_EQ(trace.owner, "bob");
  EXPECT_EQ(trace.start, now());
  EXPECT_EQ(trace.duration, kMillisecond);
  EXPECT_EQ(trace.session, "");
  EXPECT_EQ(trace.spans, 2u);
  const auto own = store_->traces(kAlice, {}, {});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->traces.at(0).root_name, "intruder");
}

using Clocks = StoreOnDiskTest;

TEST_F(Clocks, MetricsGoOnAfterTheClockWasSetBack) {
  const auto value_now = [&] {
    const auto found =
        store_->metric(kOperator, {.name = "m", .time = {now() - 5 * kSecond, now() + 1}, .step = 6 * kSecond});
    return found.ok() && !found->series.empty() ? found->series[0].points.back() : -1;
  };
  for (const double value : {1.0, 2.0, 3.0}) {
    clock_.advance(10 * kSecond);
    add({BuiltMetric{.name = "m", .value = value}});
  }
  EXPECT_EQ(value_now(), 3);
  clock_.advance(-86'400 * kSecond);
  for (const double value : {4.0, 5.0}) {
    clock_.advance(10 * kSecond);
    add({BuiltMetric{.name = "m", .value = value}});
  }
  EXPECT_EQ(value_now(), 5);
}

}  // namespace
}  // namespace tuft::telemetry_store
