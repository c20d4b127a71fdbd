// Tests the port that takes OTLP over HTTP from users' own programs.
#include <string>
#include <zlib.h>

#include "api/tests/test_client.h"
#include "telemetry/otlp/wire.h"

namespace tuft::api {
namespace {

std::string spans(int count, size_t name_bytes = 5) {
  telemetry::internal::otlp::WireWriter writer;
  const size_t resource = writer.open(1);
  const size_t scope = writer.open(2);
  for (int i = 0; i < count; ++i) {
    const size_t span = writer.open(2);
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
  expect_refusal(send("no gzip at all", {{"Content-Encoding", "gzip"}}), 400, "not valid gzip");
  expect_refusal(send(gzipped(std::string(64 << 20, 'x')), {{"Content-Encoding", "gzip"}}), 413, "4194304");
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

TEST_F(OtlpRoutes, TooMuchThen429) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(send(spans(5'000)).status, 200);
  expect_refusal(send(spans(20'000)), 429, "5000 records a second");
  EXPECT_EQ(send(spans(1), {{"X-API-Key", "tml-bob"}}).status, 200);
}

}  // namespace
}  // namespace tuft::api
