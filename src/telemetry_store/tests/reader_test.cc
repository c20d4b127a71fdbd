// The readers of OTLP: what they take from good bytes, and that bad bytes cost one record at most.
#include <gmock/gmock.h>

#include "telemetry/otlp/wire.h"
#include "telemetry_store/metric_reader.h"
#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/otlp_reader.h"
#include "telemetry_store/testing/otlp_builder.h"

namespace tuft::telemetry_store::internal {
namespace {

using telemetry::internal::otlp::WireWriter;

size_t spans_in(std::string_view request, size_t* left_out = nullptr) {
  size_t count = 0;
  const size_t bad = read_spans(request, [&count](const ScopeView&, const SpanView&) { ++count; });
  if (left_out != nullptr) *left_out = bad;
  return count;
}

// Reads the bytes as everything that they could be.
void read_all(std::string_view bytes) {
  read_spans(bytes, [](const ScopeView&, const SpanView& view) {
    Span span;
    decode_span(view.bytes, span);
    span_contains(view.bytes, "x");
  });
  read_logs(bytes, [](const ScopeView&, const LogView& view) {
    LogRecord log;
    decode_log(view.bytes, log);
    log_contains(view.bytes, "x");
  });
  read_metrics(bytes, [](const MetricView&, const PointView&) {});
}

TEST(OtlpReader, SurvivesEveryCutAndEveryChangedByte) {
  const std::vector<std::string> requests = {
      build_spans({{.trace = 1,
                    .span = 2,
                    .parent = 3,
                    .name = "n",
                    .start = 5,
                    .failed = true,
                    .attributes = {{"tuft.user", "alice"}},
                    .links = {{4, 5}}}}),
      build_logs({{.time = 7, .trace = 1, .span = 2, .attributes = {{"a", "b"}}}}),
      build_metrics({{.kind = BuiltMetric::Kind::kHistogram,
                      .value = 1,
                      .bounds = {1, 2},
                      .counts = {1, 2, 3},
                      .labels = {{"a", "b"}},
                      .exemplar_trace = 3},
                     {.kind = BuiltMetric::Kind::kExponential, .counts = {1, 2, 300}}})};
  for (const std::string& request : requests) {
    for (size_t i = 0; i < request.size(); ++i) {
      read_all(std::string_view(request).substr(0, i));
      for (const int change : {1, 0x7f, 0x80, 0xff}) {
        std::string changed = request;
        changed[i] = static_cast<char>(changed[i] ^ change);
        read_all(changed);
      }
    }
  }
}

TEST(OtlpReader, LeavesOutOnlyTheMalformedRecord) {
  const BuiltSpan good{.trace = 1, .span = 2};
  BuiltSpan without_id = good;
  without_id.span = 0;
  size_t left_out = 0;
  EXPECT_EQ(spans_in(build_spans({good, without_id, good}), &left_out), 2U);
  EXPECT_EQ(left_out, 1U);
  BuiltSpan huge = good;
  huge.name = std::string(kRecordBytesMax, 'x');
  EXPECT_EQ(spans_in(build_spans({huge, good}), &left_out), 1U);
  EXPECT_EQ(left_out, 1U);
  EXPECT_EQ(spans_in("not protobuf at all", &left_out), 0U);
  EXPECT_GT(left_out, 0U);
}

TEST(OtlpReader, LimitsNestingCountsAndLengths) {
  // A list in a list in a list ..., a thousand times.
  std::string any;
  for (int i = 0; i < 1000; ++i) {
    WireWriter writer;
    const size_t list = writer.open(5);
    writer.bytes(1, any);
    writer.close(list);
    any = writer.view();
  }
  WireWriter writer;
  writer.bytes(1, std::string(16, 'a'));
  writer.bytes(2, std::string(8, 'b'));
  for (size_t i = 0; i < kAttributesMax + 10; ++i) {
    const size_t pair = writer.open(9);
    writer.text(1, "key");
    writer.bytes(2, i == 0 ? any : std::string());
    writer.close(pair);
  }
  const size_t pair = writer.open(9);
  writer.close(pair);
  Span span;
  ASSERT_TRUE(decode_span(writer.view(), span));
  EXPECT_EQ(span.attributes.size(), kAttributesMax);
  EXPECT_LT(span.attributes[0].value.size(), 100U);
  EXPECT_FALSE(span.attributes[0].is_text);

  BuiltLog log{.body = std::string(100'000, 'y')};
  read_logs(build_logs({log}), [](const ScopeView&, const LogView& view) {
    LogRecord decoded;
    ASSERT_TRUE(decode_log(view.bytes, decoded));
    EXPECT_LT(decoded.body.size(), 20'000U);
    EXPECT_TRUE(decoded.body.ends_with("..."));
  });
}

TEST(OtlpReader, CutsTextAtTheEndOfACharacter) {
  EXPECT_EQ(clean_text("a\xc3\xa4", 2), "a...");
  EXPECT_EQ(clean_text("a\xff\xc3\xa4", 10), "a\xef\xbf\xbd\xc3\xa4");
  EXPECT_EQ(clean_text("abc", 3), "abc");
}

TEST(OtlpReader, FindsTextWithoutCase) {
  EXPECT_TRUE(contains_without_case("Hello World", "world"));
  EXPECT_FALSE(contains_without_case("Hello", "world"));
  EXPECT_TRUE(contains_without_case("HELLO", "hello"));
  EXPECT_TRUE(contains_without_case("@[`{", "@[`{"));
  EXPECT_FALSE(contains_without_case("@[", "`{"));
  EXPECT_FALSE(contains_without_case("\xc3\x84", "\xc3\xa4")) << "only ASCII letters are compared without case";
}

}  // namespace
}  // namespace tuft::telemetry_store::internal
