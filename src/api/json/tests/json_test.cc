#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "api/json/error_mapping.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "api/routing/media.h"
#include "api/tests/bodies.h"

namespace tuft::api {
namespace {

TEST(JsonWriter, NumbersHaveTheShortestFormAndNaNIsNull) {
  JsonWriter json;
  json.begin_array().number(0.1).number(0.1F).number(1e300).number(-0.0).integer(std::numeric_limits<int64_t>::min());
  json.number(std::numeric_limits<double>::infinity()).number(std::numeric_limits<float>::quiet_NaN()).end_array();
  EXPECT_EQ(std::move(json).take(), "[0.1,0.1,1e+300,-0,-9223372036854775808,null,null]");
}

TEST(JsonWriter, TextRoundTrips) {
  const std::string text = std::string("\"\\/\b\n\t\r\x01\x1f\x7f \xc3\xa9 \xf0\x9f\x99\x82") + '\0' + "end";
  JsonWriter json;
  json.begin_object().key("a\"b").string(text).key("empty").begin_array().end_array().key("n").null().end_object();
  std::string written = std::move(json).take();
  JsonBody body(written);
  EXPECT_EQ(body.fields().string("a\"b", ""), text);
  EXPECT_TRUE(body.status().ok());
}

TEST(JsonReader, IntegersAreExact) {
  std::string text = R"({"big":9223372036854775807,"over":9223372036854775808,"real":3.0,"half":3.5,"huge":1e300,)"
                     R"("text":"3","flag":true,"none":null,"seed":-1})";
  JsonBody body(text);
  const JsonFields fields = body.fields();
  EXPECT_EQ(fields.optional_integer("big"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(fields.optional_integer("real"), 3);
  EXPECT_EQ(fields.optional_integer("none"), std::nullopt);
  EXPECT_EQ(fields.optional_integer("absent"), std::nullopt);
  EXPECT_EQ(fields.optional_bits("seed"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(fields.number("seed", 0), -1.0);
  EXPECT_TRUE(body.status().ok());
  for (const char* key : {"over", "half", "huge", "text", "flag"}) {
    JsonBody again(text);
    again.fields().optional_integer(key);
    ASSERT_FALSE(again.status().ok()) << key;
    EXPECT_EQ(again.status().error().message, std::string(key) + ": must be an integer");
  }
}

TEST(JsonReader, FurtherProblemsAreCountedOnly) {
  std::string text = "{}";
  JsonBody body(text);
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g"}) body.fields().required_string(key);
  EXPECT_NE(body.status().error().message.find("and 2 more"), std::string::npos);
}

TEST(JsonReader, DeepAndBrokenDocumentsAreRefused) {
  for (std::string text : {std::string(100'000, '['), std::string("{\"a\":1"), std::string("{\"a\":01}"),
                           std::string("{\"a\":\"\\ud800\"}"), std::string("{\"a\":Infinity}"), std::string("nul")}) {
    JsonBody body(text);
    EXPECT_FALSE(body.status().ok()) << text.substr(0, 20);
  }
}

TEST(JsonReader, UnknownFieldsAreRefusedByNameWhereTheHandlerSaysSo) {
  const auto read = [](std::string text) {
    JsonBody body(text);
    const JsonFields fields = body.fields();
    fields.only({"a", "b"});
    fields.optional_integer("a");
    if (const auto inner = fields.object("b")) inner->only({"c"});
    const Status status = body.status();
    return status.ok() ? Error{} : status.error();
  };
  EXPECT_EQ(read(R"({"a":1,"b":{"c":2}})").message, "");
  const Error unknown = read(R"({"a":1,"x":null,"b":{"y":"secret"}})");
  EXPECT_EQ(unknown.reason, "unknown_field");
  EXPECT_NE(unknown.message.find("x: "), std::string::npos) << unknown.message;
  EXPECT_NE(unknown.message.find("b.y: "), std::string::npos) << unknown.message;
  EXPECT_EQ(unknown.message.find("secret"), std::string::npos);
  EXPECT_EQ(read(R"({"a":"no","x":1})").reason, kMalformedRequest);
}

TEST(Media, TypesIgnoreCaseAndParameters) {
  EXPECT_EQ(media_type(" Application/X-Protobuf ; a=b"), MediaType::kProtobuf);
  EXPECT_EQ(media_type("application/json;charset=utf-8"), MediaType::kJson);
  EXPECT_EQ(media_type(""), MediaType::kNone);
  EXPECT_EQ(media_type("application/jsonx"), MediaType::kOther);
  EXPECT_TRUE(check_content_encoding("ZSTD ").ok());
  EXPECT_FALSE(check_content_encoding("zstd, zstd").ok());
}

TEST(Media, ZstdIsAcceptedUpToTheLimit) {
  const std::string plain(1000, 'x');
  const std::string frame = zstd(plain);
  EXPECT_EQ(*decode_body(frame, "zstd", {1000}), plain);
  EXPECT_EQ(decode_body(frame, "zstd", {999}).error().code, ErrorCode::kPayloadTooLarge);
  EXPECT_EQ(*decode_body(frame + frame, "zstd", {2000}), plain + plain);
  EXPECT_EQ(decode_body(frame + frame, "zstd", {1999}).error().code, ErrorCode::kPayloadTooLarge);
  EXPECT_NE(decode_body(frame, "zstd", {999}).error().message.find("limits.request_body_bytes_max"), std::string::npos);
  EXPECT_NE(decode_body(frame, "zstd", {999, true}).error().message.find("this endpoint"), std::string::npos);
  EXPECT_EQ(decode_body(frame + "x", "zstd", {2000}).error().code, ErrorCode::kInvalidArgument);
}

// Others wait while a slice is decoded, however little comes of it.
TEST(Media, ASliceEndsForABodyThatHoldsNothing) {
  const auto decode = [](std::string body, std::string_view encoding, size_t& slices) {
    BodyDecoder decoder(std::move(body), encoding, {64 << 20}, [](int64_t) { return Status(); });
    for (slices = 1; slices < 1000; ++slices) {
      const Result<bool> is_done = decoder.advance();
      if (!is_done.ok()) return is_done.error().reason;
      if (*is_done) return decoder.take();
    }
    return std::string("endless");
  };
  const std::string plain(1000, 'x');
  size_t slices = 0;
  std::string frames;
  for (size_t i = 0; i < 5 * BodyDecoder::kSliceFrames / 2; ++i) frames += zstd("");
  EXPECT_EQ(decode(frames + zstd(plain), "zstd", slices), plain);
  EXPECT_EQ(slices, 3U);

  const size_t skipped = 5 * BodyDecoder::kSliceBytes / 2;
  std::string skippable = "\x50\x2a\x4d\x18";
  for (int shift = 0; shift < 32; shift += 8) skippable += static_cast<char>(skipped >> shift);
  skippable.append(skipped, 'x');
  EXPECT_EQ(decode(skippable + zstd(plain), "zstd", slices), plain);
  EXPECT_EQ(slices, 3U);
  skippable.resize(2 * BodyDecoder::kSliceBytes);
  EXPECT_EQ(decode(skippable, "zstd", slices), "invalid_zstd");

  std::string blocks("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  while (blocks.size() < skipped) blocks.append("\0\0\0\xff\xff", 5);
  const std::string end("\x01\0\0\xff\xff\0\0\0\0\0\0\0\0", 13);
  EXPECT_EQ(decode(blocks + end, "gzip", slices), "");
  EXPECT_EQ(slices, 3U);
  blocks.resize(2 * BodyDecoder::kSliceBytes);
  EXPECT_EQ(decode(blocks, "gzip", slices), "invalid_gzip");

  std::string large;
  for (uint32_t i = 1; large.size() < skipped; i = i * 1664525 + 1013904223) large += static_cast<char>(i >> 24);
  EXPECT_TRUE(decode(zstd(large), "zstd", slices) == large);
  EXPECT_EQ(slices, 3U) << "what cannot be compressed is not charged twice";
}

}  // namespace
}  // namespace tuft::api
