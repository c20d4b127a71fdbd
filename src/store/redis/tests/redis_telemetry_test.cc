// Tests the telemetry that a collector receives for operations on a real Redis.
#include <gtest/gtest.h>

#include "store/redis/redis_store.h"
#include "store/testing/redis_server.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::store {
namespace {

using telemetry::testing::ReceivedSpan;
using telemetry::testing::text_of;

TEST(RedisTelemetry, OperationsAreClientSpansOfTheCallersTrace) {
  if (const std::string why = RedisServer::why_missing(); !why.empty()) GTEST_SKIP() << why;
  RedisServer server;
  telemetry::WithCollector collector;
  telemetry::Span caller = telemetry::get_tracer("test").start_span("caller", {.parent = {}});
  const telemetry::SpanContext trace = caller.context();
  {
    const auto store = open_redis_store(*parse_redis_url(server.url()));
    ASSERT_TRUE(store.ok()) << store.error().message;
    ASSERT_TRUE(write_and_wait(**store, {.changes = {{"the-key", "the-secret-value"}}, .trace = trace}).ok());
    ASSERT_TRUE(get_and_wait(**store, "the-key", trace).ok());
    ASSERT_TRUE(scan_and_wait(**store, {"the"}, trace).ok());
    ASSERT_TRUE(write_and_wait(**store, {.changes = {{"the-key", std::nullopt}}, .trace = trace}).ok());
    server.kill();
    ASSERT_FALSE(get_and_wait(**store, "the-key", trace).ok());
  }
  caller.end();
  ASSERT_TRUE(collector.flush());
  int failed = 0;
  for (const char* name : {"redis.SET", "redis.GET", "redis.SCAN", "redis.DEL"}) {
    int found = 0;
    for (const ReceivedSpan& span : collector.receiver.spans()) {
      if (span.name != name) continue;
      ++found;
      EXPECT_EQ(span.trace_id, trace.trace_id_hex());
      EXPECT_EQ(span.parent_span_id, trace.span_id_hex());
      EXPECT_EQ(span.scope, "tuft.redis_store");
      EXPECT_EQ(span.kind, 3);
      EXPECT_EQ(text_of(span.attributes, "db.system"), "redis");
      EXPECT_EQ(text_of(span.attributes, "db.system.name"), "redis");
      EXPECT_EQ(text_of(span.attributes, "db.operation"), std::string(name).substr(6));
      EXPECT_EQ(text_of(span.attributes, "db.operation.name"), std::string(name).substr(6));
      EXPECT_EQ(text_of(span.attributes, "server.address"), server.socket());
      failed += span.error ? 1 : 0;
    }
    EXPECT_EQ(found, std::string(name) == "redis.GET" ? 2 : 1) << name;
  }
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(collector.receiver.raw_bytes().find("the-secret-value"), std::string::npos);
  EXPECT_EQ(collector.receiver.raw_bytes().find("the-key"), std::string::npos);
  const auto duration = collector.receiver.metric("tuft.redis.operation.duration");
  ASSERT_TRUE(duration.has_value());
  ASSERT_NE(duration->point({{"operation", "SET"}}), nullptr);
  EXPECT_GE(duration->point({{"operation", "SET"}})->count, 1U);
  const auto client = collector.receiver.metric("db.client.operation.duration");
  ASSERT_TRUE(client.has_value());
  EXPECT_NE(client->point({{"db.system.name", "redis"}, {"db.operation.name", "SCAN"}}), nullptr);
  EXPECT_GE(collector.sum("tuft.store.errors", {{"operation", "GET"}, {"reason", "store_unreachable"}}), 1);
  EXPECT_TRUE(collector.log("store.error").has_value());
}

TEST(RedisTelemetry, SlowOperationIsCountedAndLogged) {
  if (const std::string why = RedisServer::why_missing(); !why.empty()) GTEST_SKIP() << why;
  RedisServer server;
  telemetry::WithCollector collector;
  telemetry::Span caller = telemetry::get_tracer("test").start_span("caller", {.parent = {}});
  const auto store = open_redis_store(*parse_redis_url(server.url()), {.answer = kSecond / 4});
  ASSERT_TRUE(store.ok()) << store.error().message;
  server.pause(true);
  EXPECT_FALSE(write_and_wait(**store, {.changes = {{"k", "v"}}, .trace = caller.context()}).ok());
  server.pause(false);
  ASSERT_TRUE(collector.flush());
  EXPECT_GE(collector.sum("tuft.store.slow_ops", {{"operation", "SET"}}), 1);
  const auto warning = collector.log("store.slow");
  ASSERT_TRUE(warning.has_value());
  EXPECT_EQ(warning->trace_id, caller.context().trace_id_hex());
}

}  // namespace
}  // namespace tuft::store
