#include "tokenizer/tokenizer.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tokenizer/normalizer.h"

namespace tuft::tokenizer {
namespace {

std::string tokenizer_json(const std::string& model, const std::string& more = "") {
  return R"({"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":)" +
         model + more + "}";
}

const std::string kModel = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":[["a","b"]]})";

std::string error_of(const std::string& json) {
  const auto tokenizer = Tokenizer::parse(json, "here/tokenizer.json");
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

TEST(Tokenizer, WordThenLowestRankMergesFirst) {
  const auto tokenizer = Tokenizer::parse(tokenizer_json(kModel), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("abba ab"), (std::vector<int32_t>{2, 1, 0, 3, 2}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2, 1, 0, 3, 2}), "abba ab");
}

TEST(Tokenizer, SpecialTokensThenOnlyWhereAsked) {
  const std::string more = R"(,"added_tokens":[{"id":9,"content":"<s>","special":true}],"post_processor":{"type":
      "TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
      "special_tokens":{"<s>":{"id":"<s>","ids":[9],"tokens":["<s>"]}}})";
  const auto tokenizer = Tokenizer::parse(tokenizer_json(kModel, more), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("ab"), (std::vector<int32_t>{9, 2}));
  EXPECT_EQ(*tokenizer->encode("ab", {.add_special_tokens = false}), (std::vector<int32_t>{2}));
  EXPECT_EQ(*tokenizer->encode("a<s>b", {.add_special_tokens = false}), (std::vector<int32_t>{0, 9, 1}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{9, 2}), "ab");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{9, 2}, false), "<s>ab");
}

TEST(Tokenizer, TooManyTokensThenRefused) {
  const auto tokenizer = Tokenizer::parse(tokenizer_json(kModel), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto ids = tokenizer->encode("ab ab ab", {.tokens_max = 5});
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(*ids, (std::vector<int32_t>{2, 3, 2, 3, 2}));
  const auto refused = tokenizer->encode("ab ab ab", {.tokens_max = 4});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().reason, kTooManyTokens);
}

TEST(Tokenizer, LongWordsInTurnsThenTheSameTokens) {
  const std::string more = R"(,"added_tokens":[{"id":9,"content":"<s>","special":true}])";
  const auto tokenizer = Tokenizer::parse(tokenizer_json(kModel, more), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  std::string text;
  std::vector<int32_t> expected;
  for (size_t i = 0; i < kLongWordBytes; ++i) {
    text += "ab";
    expected.push_back(2);
  }
  text += " ba " + std::string(kLongWordBytes, 'b') + "<s>ab";
  expected.insert(expected.end(), {3, 1, 0, 3});
  expected.insert(expected.end(), kLongWordBytes, 1);
  expected.insert(expected.end(), {9, 2});
  EXPECT_EQ(*tokenizer->encode(text), expected);
  auto encoding = tokenizer->start(text);
  ASSERT_TRUE(encoding.ok()) << encoding.error().message;
  size_t turns = 1;
  for (auto done = encoding->advance(1000); done.ok() && !*done; done = encoding->advance(1000)) ++turns;
  EXPECT_GE(turns, 6 * kLongWordBytes / 1000) << "each character is read and becomes a symbol";
  EXPECT_LE(turns, kStepsOfByte * text.size() / 1000 + 1);
  EXPECT_EQ(encoding->take(), expected);
}

TEST(Tokenizer, LongWordOfTooManyTokensThenRefused) {
  const auto tokenizer = Tokenizer::parse(tokenizer_json(kModel), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string text(kLongWordBytes, 'b');
  EXPECT_TRUE(tokenizer->encode(text, {.tokens_max = text.size()}).ok());
  const auto refused = tokenizer->encode(text, {.tokens_max = text.size() - 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, kTooManyTokens);
}

TEST(Tokenizer, WhatASplitRemovesIsNoWord) {
  const auto tokenizer =
      Tokenizer::parse(R"({"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"Split","pattern":{"String":"-"},)"
                       R"("behavior":"Removed"},"model":)" +
                           kModel + "}",
                       "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("-ab-a--b"), (std::vector<int32_t>{2, 0, 1}));
}

TEST(Tokenizer, TextIsNoUtf8ThenInvalidArgument) {
  const auto tokenizer = Tokenizer::parse(tokenizer_json(kModel), "test");
  const auto ids = tokenizer->encode("a\xFF");
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
}

TEST(Tokenizer, TokensCutACharacterThenReplacementCharacter) {
  const std::string model = R"({"type":"BPE","vocab":{"â":0,"Ĥ":1,"¬":2},"merges":[]})";  // the bytes of the euro sign
  const auto tokenizer = Tokenizer::parse(tokenizer_json(model), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 1, 2}), "\xE2\x82\xAC");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 1}), "\xEF\xBF\xBD");
}

std::string normalized(const std::string& form, std::string_view text) {
  const auto normalizer = Normalizer::read(Json::object({{"type", form}}), "test");
  EXPECT_TRUE(normalizer.ok()) << normalizer.error().message;
  const auto out = normalizer->apply(text);
  EXPECT_TRUE(out.ok()) << out.error().message;
  return out.ok() ? *out : "";
}

// The values are those of Python's unicodedata.normalize().
TEST(Tokenizer, UnicodeFormsPutMarksInOrder) {
  // Of class 230 and 220: what has the same class keeps its order, and what is between other characters stays there.
  const std::string text = "a\u0301\u0316\u0308 \u0344\u0316b\u0316";
  EXPECT_EQ(normalized("NFD", text), "a\u0316\u0301\u0308 \u0316\u0308\u0301b\u0316");
  EXPECT_EQ(normalized("NFC", text), "\u00e1\u0316\u0308 \u0316\u0308\u0301b\u0316");
  // The parts of a character and the marks behind it are ordered together.
  EXPECT_EQ(normalized("NFD", "\u1f82\u0316"), "\u03b1\u0316\u0313\u0300\u0345");
  EXPECT_EQ(normalized("NFC", "\u1e69\u0323"), "\u1e69\u0323");
  EXPECT_EQ(normalized("NFKC", "\ufb01\u0301\u0316\uac00\u11a8"), "f\u00ed\u0316\uac01");
  EXPECT_EQ(normalized("NFKD", "\ufdfa\uac01"),
            "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 \u0639\u0644\u064a\u0647 "
            "\u0648\u0633\u0644\u0645\u1100\u1161\u11a8");
  EXPECT_EQ(normalized("NFC", ""), "");
}

// Swapping neighbours, as utf8proc_map() does, would take many minutes.
TEST(Tokenizer, ManyMarksThenInOrderSoon) {
  const auto many = [](const char* mark) {
    std::string out;
    for (int i = 0; i < 1 << 18; ++i) out += mark;
    return out;
  };
  EXPECT_TRUE(normalized("NFD", "a" + many("\u0301") + many("\u0316")) == "a" + many("\u0316") + many("\u0301"));
}

TEST(Tokenizer, WhatANormalizerAddsIsChargedBeforeItIsEncoded) {
  const auto tokenizer = Tokenizer::parse(tokenizer_json(kModel, R"(,"normalizer":{"type":"NFKD"})"), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  size_t added = 0;
  const auto charge = [&](size_t bytes) -> Status {
    added += bytes;
    return {};
  };
  EXPECT_EQ(*tokenizer->encode("ab", {.charge = charge}), (std::vector<int32_t>{2}));
  EXPECT_EQ(added, 0U);
  EXPECT_EQ(*tokenizer->encode("ab\ufdfa\ufdfa", {.charge = charge}), (std::vector<int32_t>{2, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(added, 2U * (33 - 3));
  const auto refuse = [](size_t) -> Status { return internal_error("no more"); };
  const auto refused = tokenizer->encode("\ufdfa", {.charge = refuse});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "no more");
}

TEST(Tokenizer, UnsupportedKindIsNamed) {
  EXPECT_EQ(error_of(tokenizer_json(R"({"type":"WordPiece","vocab":{}})")),
            "here/tokenizer.json: model type 'WordPiece' is not read; BPE is");
  EXPECT_EQ(error_of(tokenizer_json(kModel, R"(,"normalizer":{"type":"BertNormalizer"})")),
            "here/tokenizer.json: normalizer 'BertNormalizer' is not read");
  EXPECT_EQ(error_of(tokenizer_json(kModel, R"(,"post_processor":{"type":"RobertaProcessing"})")),
            "here/tokenizer.json: post-processor 'RobertaProcessing' is not read");
}

TEST(Tokenizer, MalformedFileThenNamed) {
  for (const char* model :
       {R"({"type":"BPE","vocab":{"a":-1},"merges":[]})", R"({"type":"BPE","vocab":{},"merges":[1]})",
        R"({"type":"BPE","vocab":{"a":0},"merges":[["a","b"]]})",
        R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})", R"({"type":"BPE","vocab":[]})",
        R"({"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"?"})", "[]", "null"}) {
    EXPECT_TRUE(error_of(tokenizer_json(model)).starts_with("here/tokenizer.json: ")) << model;
  }
  EXPECT_NE(error_of("{"), "");
  EXPECT_NE(
      error_of(tokenizer_json(kModel, R"(,"normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""})")), "");
}

}  // namespace
}  // namespace tuft::tokenizer
