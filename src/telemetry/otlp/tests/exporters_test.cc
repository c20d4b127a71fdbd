// Tests each kind of exporter against a collector that accepts, refuses, hangs, or uses TLS.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "telemetry/otlp/encode_records.h"
#include "telemetry/otlp/exporter.h"
#include "telemetry/otlp/tests/recorded.h"
#include "telemetry/testing/http_receiver.h"
#include "telemetry/testing/otlp_receiver.h"
#include "telemetry/trace.h"

namespace tuft::telemetry::internal::otlp {
namespace {

using Outcome = ExportResult::Outcome;
using testing::HttpReceiver;
using testing::OtlpReceiver;
using testing::TlsFiles;
namespace collector = opentelemetry::proto::collector;

std::string spans_request(int count = 3) {
  const Recorded recorded = record([count] {
    for (int i = 0; i < count; ++i) get_tracer("tuft.test").start_span("work", {.attributes = {{"i", i}}});
  });
  RecordEncoder encoder("");
  for (const Record& span : recorded.spans) encoder.add_span(span.data(), 0);
  return encoder.take();
}

std::unique_ptr<Exporter> exporter(const SignalSettings& settings) {
  auto made = make_exporter(Signal::kTraces, settings);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

SignalSettings grpc_settings(const OtlpReceiver& receiver) {
  const std::string url = receiver.endpoint();
  return {.protocol = Protocol::kGrpc, .endpoint = url.substr(url.find("//") + 2), .export_timeout = 20 * kSecond};
}

SignalSettings http_settings(const HttpReceiver& receiver) {
  return {.protocol = Protocol::kHttpProtobuf,
          .endpoint = receiver.endpoint() + "/v1/traces",
          .export_timeout = 20 * kSecond};
}

TEST(GrpcExporter, AnswersOfTheCollectorThenClassified) {
  OtlpReceiver receiver;
  const auto to = exporter(grpc_settings(receiver));
  EXPECT_EQ(to->send(spans_request()).outcome, Outcome::kDelivered);
  EXPECT_EQ(receiver.spans().size(), 3u);

  receiver.set_mode(OtlpReceiver::Mode::kAway);
  ExportResult result = to->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRetry);
  EXPECT_EQ(result.error_type, "UNAVAILABLE");
  EXPECT_EQ(result.retry_after, 0);

  receiver.set_mode(OtlpReceiver::Mode::kBusy);
  result = to->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRetry);
  EXPECT_EQ(result.error_type, "RESOURCE_EXHAUSTED");
  EXPECT_EQ(result.retry_after, 50 * kMillisecond);

  receiver.set_mode(OtlpReceiver::Mode::kRefuse);
  result = to->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_EQ(result.error_type, "INVALID_ARGUMENT");
  EXPECT_NE(result.message.find("refused by the test"), std::string::npos);

  receiver.set_mode(OtlpReceiver::Mode::kPartly);
  result = to->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kDelivered);
  EXPECT_EQ(result.rejected, 1);
}

TEST(GrpcExporter, NobodyListensThenRetry) {
  const auto to = exporter({.protocol = Protocol::kGrpc, .endpoint = "127.0.0.1:1"});
  const ExportResult result = to->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRetry);
  EXPECT_EQ(result.error_type, "UNAVAILABLE");
}

TEST(GrpcExporter, HeadersAndGzipThenTheyArrive) {
  OtlpReceiver receiver;
  SignalSettings settings = grpc_settings(receiver);
  settings.headers = {{"x-team", "blue"}};
  settings.compression = Compression::kGzip;
  EXPECT_EQ(exporter(settings)->send(spans_request()).outcome, Outcome::kDelivered);
  EXPECT_EQ(receiver.spans().size(), 3u);
  EXPECT_EQ(receiver.headers()["x-team"], "blue");
}

TEST(GrpcExporter, TimeoutThenRetry) {
  OtlpReceiver receiver(OtlpReceiver::Mode::kHang);
  SignalSettings settings = grpc_settings(receiver);
  settings.export_timeout = 50 * kMillisecond;
  const ExportResult result = exporter(settings)->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRetry);
  EXPECT_EQ(result.error_type, "DEADLINE_EXCEEDED");
}

// Sends to a collector that hangs. Another thread cancels as soon as `arrived` returns true.
template <typename Arrived>
void expect_cancel_ends_send(Exporter& to, Arrived&& arrived) {
  const Nanos start = system_clock().monotonic();
  ExportResult result;
  std::thread sending([&] { result = to.send(spans_request()); });
  EXPECT_TRUE(arrived());
  to.cancel();
  sending.join();
  EXPECT_LT(system_clock().monotonic() - start, 10 * kSecond);
  EXPECT_EQ(result.outcome, Outcome::kRetry);
  EXPECT_EQ(to.send(spans_request()).outcome, Outcome::kRetry);
}

TEST(GrpcExporter, CancelledWhileItHangsThenEndsAtOnce) {
  OtlpReceiver receiver(OtlpReceiver::Mode::kHang);
  const auto to = exporter(grpc_settings(receiver));
  expect_cancel_ends_send(*to, [&] { return receiver.wait_until([&] { return receiver.requests() == 1; }); });
}

TEST(GrpcExporter, TlsWithTheTestsAuthorityThenDeliveredAndWithoutItNot) {
  const TlsFiles files;
  OtlpReceiver receiver(OtlpReceiver::Mode::kAnswer, &files);
  SignalSettings settings = grpc_settings(receiver);
  settings.tls = true;
  settings.ca_file = files.ca();
  settings.certificate_file = files.client_certificate();
  settings.key_file = files.client_key();
  EXPECT_EQ(exporter(settings)->send(spans_request()).outcome, Outcome::kDelivered);
  EXPECT_EQ(receiver.spans().size(), 3u);

  settings.certificate_file.clear();
  settings.key_file.clear();
  EXPECT_EQ(exporter(settings)->send(spans_request()).outcome, Outcome::kRetry);
  settings.ca_file = files.directory / "missing.pem";
  const auto missing = make_exporter(Signal::kTraces, settings);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("missing.pem"), std::string::npos);
}

TEST(HttpExporter, RequestThenProtobufAtTheUrlWithHeaders) {
  HttpReceiver receiver;
  SignalSettings settings = http_settings(receiver);
  settings.headers = {{"x-team", "blue"}};
  const auto to = exporter(settings);
  EXPECT_EQ(to->send(spans_request()).outcome, Outcome::kDelivered);
  EXPECT_EQ(to->send(spans_request(5)).outcome, Outcome::kDelivered);
  ASSERT_EQ(receiver.requests().size(), 2u);
  const testing::HttpRequest request = receiver.requests()[1];
  EXPECT_EQ(request.path, "/v1/traces");
  EXPECT_EQ(request.headers.at("content-type"), "application/x-protobuf");
  EXPECT_EQ(request.headers.at("x-team"), "blue");
  EXPECT_EQ(request.headers.count("content-encoding"), 0u);
  collector::trace::v1::ExportTraceServiceRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(request.body));
  EXPECT_EQ(parsed.resource_spans(0).scope_spans(0).spans_size(), 5);
}

TEST(HttpExporter, GzipThenTheBodyUnpacksToTheSame) {
  HttpReceiver receiver;
  SignalSettings settings = http_settings(receiver);
  settings.compression = Compression::kGzip;
  const std::string sent = spans_request(200);
  EXPECT_EQ(exporter(settings)->send(sent).outcome, Outcome::kDelivered);
  ASSERT_EQ(receiver.requests().size(), 1u);
  EXPECT_EQ(receiver.requests()[0].headers.at("content-encoding"), "gzip");
  EXPECT_LT(receiver.requests()[0].body.size(), sent.size() * 3 / 4);
  EXPECT_EQ(testing::gunzip(receiver.requests()[0].body), sent);
}

TEST(HttpExporter, AnswersOfTheCollectorThenClassified) {
  HttpReceiver receiver;
  const auto to = exporter(http_settings(receiver));
  for (const int status : {429, 502, 503, 504}) {
    receiver.set_answer({.status = status});
    const ExportResult result = to->send(spans_request());
    EXPECT_EQ(result.outcome, Outcome::kRetry) << status;
    EXPECT_EQ(result.error_type, std::to_string(status));
  }
  for (const int status : {400, 401, 404, 413, 500, 501}) {
    receiver.set_answer({.status = status, .body = "no\nway", .content_type = "text/plain"});
    const ExportResult result = to->send(spans_request());
    EXPECT_EQ(result.outcome, Outcome::kRefused) << status;
    EXPECT_NE(result.message.find("no way"), std::string::npos) << result.message;
  }
  receiver.set_answer({.status = 503, .headers = {"Retry-After: 7"}});
  EXPECT_EQ(to->send(spans_request()).retry_after, 7 * kSecond);
  // A google.rpc.Status.
  receiver.set_answer({.status = 400, .body = std::string("\x12\x08too late", 10)});
  EXPECT_EQ(to->send(spans_request()).message, "HTTP 400: too late");

  collector::trace::v1::ExportTraceServiceResponse partial;
  partial.mutable_partial_success()->set_rejected_spans(2);
  receiver.set_answer({.body = partial.SerializeAsString()});
  const ExportResult result = to->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kDelivered);
  EXPECT_EQ(result.rejected, 2);
}

TEST(HttpExporter, RedirectThenNotFollowed) {
  HttpReceiver elsewhere;
  HttpReceiver receiver;
  receiver.set_answer({.status = 307, .headers = {"Location: " + elsewhere.endpoint() + "/v1/traces"}});
  EXPECT_EQ(exporter(http_settings(receiver))->send(spans_request()).outcome, Outcome::kRefused);
  EXPECT_TRUE(elsewhere.requests().empty());
}

TEST(HttpExporter, EndlessAnswerThenOnlyItsBeginningIsKept) {
  HttpReceiver receiver;
  receiver.set_answer({.status = 400, .body = std::string(5'000'000, 'x'), .content_type = "text/plain"});
  const ExportResult result = exporter(http_settings(receiver))->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_LT(result.message.size(), 300u);
}

TEST(HttpExporter, NobodyListensOrNobodyAnswersThenRetry) {
  ExportResult result = exporter({.protocol = Protocol::kHttpProtobuf, .endpoint = "http://127.0.0.1:1/v1/traces"})
                            ->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRetry);
  EXPECT_EQ(result.error_type, "connection_failed");

  HttpReceiver receiver;
  receiver.set_answer({.hang = true});
  SignalSettings settings = http_settings(receiver);
  settings.export_timeout = 50 * kMillisecond;
  result = exporter(settings)->send(spans_request());
  EXPECT_EQ(result.outcome, Outcome::kRetry);
  EXPECT_EQ(result.error_type, "timeout");
}

TEST(HttpExporter, CancelledWhileItHangsThenEndsAtOnce) {
  HttpReceiver receiver;
  receiver.set_answer({.hang = true});
  const auto to = exporter(http_settings(receiver));
  expect_cancel_ends_send(*to, [&] { return receiver.wait_for_requests(1); });
}

TEST(HttpExporter, TlsWithTheTestsAuthorityThenDeliveredAndWithoutItNot) {
  const TlsFiles files;
  HttpReceiver receiver(&files);
  SignalSettings settings = http_settings(receiver);
  settings.tls = true;
  EXPECT_EQ(exporter(settings)->send(spans_request()).error_type, "tls_failed");
  settings.ca_file = files.ca();
  settings.certificate_file = files.client_certificate();
  settings.key_file = files.client_key();
  EXPECT_EQ(exporter(settings)->send(spans_request()).outcome, Outcome::kDelivered);
  EXPECT_EQ(receiver.requests().size(), 1u);
}

}  // namespace
}  // namespace tuft::telemetry::internal::otlp
