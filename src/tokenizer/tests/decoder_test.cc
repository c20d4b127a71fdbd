#include "tokenizer/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"

namespace tuft::tokenizer {
namespace {

using ::testing::HasSubstr;

TEST(Decoder, ByteLevelThenBytesAndAddedTokens) {
  const auto decoder = Decoder::parse(
      R"({"added_tokens":[{"id":5,"content":"<|im_end|>","special":true},{"id":7,"content":"two words"}],
          "decoder":{"type":"ByteLevel"},
          "model":{"type":"BPE",
                   "vocab":{"\u0120hello":0,"\u00e2\u0124":1,"\u00ac":2,"\u010a":3,"caf\u00c3\u00a9":4,"\u65e5":6},
                   "merges":["a b",["c","d"]]}})",
      "tokenizer.json");
  ASSERT_TRUE(decoder.ok()) << decoder.error().message;
  EXPECT_EQ(decoder->token_bytes(0), " hello");
  EXPECT_EQ(decoder->token_bytes(1) + decoder->token_bytes(2), "\u20AC") << "a character in two tokens";
  EXPECT_EQ(decoder->token_bytes(3), "\n");
  EXPECT_EQ(decoder->token_bytes(4), "caf\u00E9");
  EXPECT_EQ(decoder->token_bytes(5), "<|im_end|>");
  EXPECT_EQ(decoder->token_bytes(6), "\u65E5") << "not in the alphabet: as it stands";
  EXPECT_EQ(decoder->token_bytes(7), "two words");
  EXPECT_EQ(decoder->size(), 8);
}

TEST(Decoder, SentencePieceStyleThenSpacesAndBytes) {
  const auto decoder = Decoder::parse(
      R"({"added_tokens":[{"id":2,"content":"</s>"},{"id":7,"content":"<0x41>"}],
          "decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},
            {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
          "model":{"type":"BPE",
                   "vocab":{"\u2581the":0,"<0xE2>":1,"</s>":2,"\u2581\u2581":3,"a\u2581b":4,"<0xZZ>":5,"<0x0a>":6},
                   "merges":[]}})",
      "tokenizer.json");
  ASSERT_TRUE(decoder.ok()) << decoder.error().message;
  EXPECT_EQ(decoder->token_bytes(0), " the");
  EXPECT_EQ(decoder->token_bytes(1), "\xE2");
  EXPECT_EQ(decoder->token_bytes(2), "</s>");
  EXPECT_EQ(decoder->token_bytes(3), "  ");
  EXPECT_EQ(decoder->token_bytes(4), "a b");
  EXPECT_EQ(decoder->token_bytes(5), "<0xZZ>");
  EXPECT_EQ(decoder->token_bytes(6), "\n");
  EXPECT_EQ(decoder->token_bytes(7), "A");
}

TEST(Decoder, UnknownIdGivesNothing) {
  const auto decoder = Decoder::parse(
      R"({"decoder":{"type":"Metaspace"},"model":{"type":"BPE","vocab":{"a":0,"b":3}}})", "tokenizer.json");
  ASSERT_TRUE(decoder.ok());
  for (const int32_t id : {-1, 1, 4, INT32_MAX}) EXPECT_EQ(decoder->token_bytes(id), "");
  EXPECT_EQ(decoder->token_bytes(3), "b");
}

TEST(Decoder, UnsupportedFileThenTheReason) {
  const struct {
    const char* text;
    ErrorCode code;
    const char* message;
  } table[] = {
      {"", ErrorCode::kInvalidArgument, "JSON"},
      {"[]", ErrorCode::kInvalidArgument, "JSON"},
      {"{}", ErrorCode::kUnimplemented, "decoder"},
      {R"({"decoder":{"type":"WordPiece"},"model":{}})", ErrorCode::kUnimplemented, "WordPiece"},
      {R"({"decoder":{"type":"ByteLevel"}})", ErrorCode::kInvalidArgument, "model is missing"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"Unigram","vocab":[]}})", ErrorCode::kUnimplemented,
       "Unigram"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":[]}})", ErrorCode::kInvalidArgument,
       "model.vocab"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":-1}}})", ErrorCode::kInvalidArgument,
       "id"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":1e3}}})", ErrorCode::kInvalidArgument,
       "id"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":4000000000}}})",
       ErrorCode::kInvalidArgument, "id"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{}},"added_tokens":[{"id":1}]})",
       ErrorCode::kInvalidArgument, "added_tokens"},
      {R"({"decoder":{"type":"Sequence","decoders":3},"model":{}})", ErrorCode::kUnimplemented, "Sequence"},
  };
  for (const auto& row : table) {
    const auto decoder = Decoder::parse(row.text, "tokenizer.json");
    ASSERT_FALSE(decoder.ok()) << row.text;
    EXPECT_EQ(decoder.error().code, row.code) << row.text;
    EXPECT_THAT(decoder.error().message, HasSubstr(row.message));
    EXPECT_THAT(decoder.error().message, HasSubstr("tokenizer.json"));
  }
}

TEST(Decoder, DirectoryThenItsFileIsRead) {
  const TempDir directory;
  EXPECT_EQ(Decoder::load(directory.path()).error().code, ErrorCode::kNotFound);
  write_text(directory / "tokenizer.json",
             R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"x":0}}})");
  const auto decoder = Decoder::load(directory.path());
  ASSERT_TRUE(decoder.ok()) << decoder.error().message;
  EXPECT_EQ(decoder->token_bytes(0), "x");
}

}  // namespace
}  // namespace tuft::tokenizer
