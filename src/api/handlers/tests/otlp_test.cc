// Tests the port that takes OTLP over HTTP from users' own programs.
#include <string>
#include <zlib.h>

#include "api/tests/test_client.h"
#include "telemetry/otlp/response.h"
#include "telemetry/otlp/wire.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::api {
namespace {

std::string spans(int count, size_t name_bytes = 5) {
  telemetry::internal::otlp::WireWriter writer;
  const size_t resource = writer.open(1);
  const size_t scope = writer.open(2);
  for (int i = 0; i < count; ++i) {
    const size_t span = writer.open(2);
    writer.bytes(1, "a trace's number");
    writer.bytes(2, "a span's");
    writer.text(5, std::string(name_bytes, 'x'));
    writer.close(span);
  }
  writer.close(scope);
  writer.close(resource);
  return std::string(writer.view());
}

std::string gzipped(std::string text) {
  std::string out(text.size() + 1024, '\0');
  z_stream stream = {};
  EXPECT_EQ(::deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

class OtlpRoutes : public ServerTest {
 protected:
  void SetUp() override {
    options.routes = intake_routes();
    options.is_first = false;
    start();
  }
  Reply send(const std::string& body, Headers headers = {}, const std::string& path = "/v1/traces") {
    headers.emplace("Content-Type", "application/x-protobuf");
    return call("POST", path, body, headers);
  }
};

TEST_F(OtlpRoutes, ThreeSignalsWithAKeyThenTheyAreTheUsers) {
  const Reply reply = send(spans(2));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "application/x-protobuf");
  EXPECT_EQ(reply.body, "") << "an empty message";
  EXPECT_EQ(send(spans(1), {{"X-API-Key", ""}, {"Authorization", "Bearer tml-bob"}}, "/v1/logs").status, 200);
  EXPECT_EQ(send(spans(0), {}, "/v1/metrics").status, 200);
  expect_refusal(send(spans(1), {}, "/v1/metrics"), 400, "OTLP");
  const auto added = control.store.added();
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[0].owner, "alice");
  EXPECT_EQ(added[0].request, spans(2));
  EXPECT_EQ(added[0].type, telemetry_store::RecordType::kSpans);
  EXPECT_EQ(added[1].owner, "bob");
  EXPECT_EQ(added[1].type, telemetry_store::RecordType::kLogs);
  EXPECT_EQ(control.store.metrics().size(), 1u);
}

TEST_F(OtlpRoutes, CompressedThenTheSameComesOut) {
  // More than a slice of the decoder would be refused; this takes its growing buffer.
  const std::string large = spans(3'000, 900);
  EXPECT_EQ(send(gzipped(large), {{"Content-Encoding", "gzip"}}).status, 200);
  ASSERT_EQ(control.store.added().size(), 1u);
  EXPECT_EQ(control.store.added()[0].request, large);
}

TEST_F(OtlpRoutes, DamagedOrEndlessGzipThenRefused) {
  const std::string good = gzipped(spans(100, 500));
  expect_refusal(send(good.substr(0, good.size() / 2), {{"Content-Encoding", "gzip"}}), 400, "truncated");
  expect_refusal(send(good + "more", {{"Content-Encoding", "gzip"}}), 400, "after the gzip body");
  // Each costs as much as the longest body, and two of these are what a user may send at once.
  const Headers of_bob = {{"Content-Encoding", "gzip"}, {"X-API-Key", "tml-bob"}};
  expect_refusal(send("no gzip at all", of_bob), 400, "not valid gzip");
  expect_refusal(send(gzipped(std::string(64 << 20, 'x')), of_bob), 413, "4194304");
  EXPECT_TRUE(control.store.added().empty());
}

TEST_F(OtlpRoutes, WhatIsNotTakenThenRefusedByName) {
  expect_refusal(send(spans(1), {{"X-API-Key", "tml-mallory"}}), 403, "key");
  expect_refusal(send(spans(1), {{"Content-Type", "application/json"}}), 415, "OTEL_EXPORTER_OTLP_PROTOCOL");
  expect_refusal(send(spans(1), {{"Content-Encoding", "br"}}), 415, "gzip, zstd");
  expect_refusal(send("no request"), 400, "OTLP");
  expect_refusal(send(std::string((4 << 20) + 1, 'x')), 413, "4194304");
  expect_refusal(call("POST", "/api/v1/create_session", "{}"), 404, "/api/v1/create_session");
  EXPECT_TRUE(control.store.added().empty());
}

TEST_F(OtlpRoutes, SomeIsNotKeptThenTheAnswerSaysSo) {
  const Reply reply = send(spans(2) + spans(1, 1 << 20));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "application/x-protobuf");
  const auto partial = telemetry::internal::otlp::read_partial_success(reply.body);
  EXPECT_EQ(partial.rejected, 1);
  EXPECT_NE(partial.message.find("larger than 1048576 bytes"), std::string::npos) << partial.message;
}

TEST_F(OtlpRoutes, QueueIsFullThen429AndWhenToTryAgain) {
  control.store.has_room = false;
  const Reply reply = send(spans(2));
  expect_refusal(reply, 429, "queue");
  EXPECT_TRUE(reply.has("retry-after"));
  control.store.has_room = true;
  EXPECT_EQ(send(spans(2)).status, 200);
}

TEST_F(OtlpRoutes, ShortQueueThenTheLimitOfABodyIsThatOfTheQueue) {
  control.store.bytes_max = 100'000;
  EXPECT_EQ(send(spans(1, 99'000)).status, 200);
  expect_refusal(send(spans(1, 100'000)), 413, "100000");
  expect_refusal(send(gzipped(spans(1, 100'000)), {{"Content-Encoding", "gzip"}}), 413, "100000");
}

// A few KB become 4 MiB, whose size is known only when they are there.
TEST_F(OtlpRoutes, BodiesThatGrowThenFewAreDecompressed) {
  const telemetry::testing::RecordedMetrics recorded;
  const auto count = [&](const std::string& status) {
    return recorded.counter("tuft.intake.requests", {{"signal", "traces"}, {"status", status}});
  };
  // Bytes that are no request, so each that is decompressed is charged whole. The rate lets one more in each few
  // seconds, however fast the test is.
  const std::string bomb = gzipped(std::string(4'190'000, '\0'));
  for (int i = 0; i < 100; ++i) send(bomb, {{"Content-Encoding", "gzip"}});
  EXPECT_GE(count("invalid_otlp"), 1);
  EXPECT_LE(count("invalid_otlp"), 20);
  EXPECT_EQ(count("invalid_otlp") + count("intake_rate"), 100);
  // The same of what is too large.
  int too_large = 0;
  const std::string larger = gzipped(std::string(16 << 20, 'x'));
  for (int i = 0; i < 50; ++i) {
    const Reply reply = send(larger, {{"Content-Encoding", "gzip"}, {"X-API-Key", "tml-bob"}});
    too_large += reply.status == 413 ? 1 : 0;
    EXPECT_TRUE(reply.status == 413 || reply.status == 429) << reply.status;
  }
  EXPECT_LE(too_large, 20);
  EXPECT_EQ(send(spans(1), {{"X-API-Key", "tml-carol"}}).status, 200) << "others do not feel it";
}

// The answer comes although no byte of the body does.
TEST_F(OtlpRoutes, NothingMayBeSentThenTheBodyIsNotRead) {
  control.fake_intake.charge_refused(control::UserId("alice"), int64_t{100} << 20);
  TestClient client(server->port());
  std::string head = request_text("POST", "/v1/logs", "", {{"Content-Type", "application/x-protobuf"}});
  head.replace(head.find("Content-Length: 0"), 17, "Content-Length: 4000000");
  client.send(head);
  const Reply reply = client.read_reply();
  expect_refusal(reply, 429, "1 MiB");
  EXPECT_TRUE(reply.has("retry-after"));
}

TEST_F(OtlpRoutes, TooMuchThen429) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(send(spans(5'000)).status, 200);
  expect_refusal(send(spans(20'000)), 429, "5000 records a second");
  EXPECT_EQ(send(spans(1), {{"X-API-Key", "tml-bob"}}).status, 200);
}

}  // namespace
}  // namespace tuft::api
