#include "openai/text_stream.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "openai/tests/byte_model.h"

namespace tuft::openai {
namespace {

class TextStreamTest : public ::testing::Test {
 protected:
  // Returns the text after each token and at the end.
  std::vector<std::string> pieces(const std::vector<int32_t>& tokens, bool stopped = false) {
    TextStream stream(*model_.text(), stops, false);
    std::vector<std::string> out;
    for (const int32_t token : tokens) {
      stream.add({token, -1.0F}, {});
      out.push_back(stream.take().text);
    }
    stream.finish(stopped);
    out.push_back(stream.take().text);
    reason = stream.finish_reason();
    return out;
  }

  std::vector<std::string> stops;
  std::string reason;
  ByteModel model_;
};

TEST_F(TextStreamTest, CharactersAreNotSplit) {
  // U+20AC and U+1F600, one byte per token.
  EXPECT_EQ(pieces({0xE2, 0x82, 0xAC, 'a', 0xF0, 0x9F, 0x98, 0x80}),
            (std::vector<std::string>{"", "", "\xE2\x82\xAC", "a", "", "", "", "\xF0\x9F\x98\x80", ""}));
  EXPECT_EQ(reason, "length");
}

TEST_F(TextStreamTest, BrokenCharacterBecomesOneReplacement) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(pieces({0xE2, 0x82, 'a'}), (std::vector<std::string>{"", "", bad + "a", ""}));
  EXPECT_EQ(pieces({0xE2, 0x82}), (std::vector<std::string>{"", "", bad}));
  EXPECT_EQ(pieces({0xFF, 0x80, 0x80, 'a'}), (std::vector<std::string>{bad, "", "", "a", ""}));
}

TEST_F(TextStreamTest, TextEndsBeforeAStopString) {
  stops = {"stop", "x"};
  EXPECT_EQ(pieces({'a', 's', 't', 'o', 'p', 'b'}), (std::vector<std::string>{"a", "", "", "", "", "", ""}));
  EXPECT_EQ(reason, "stop");
  EXPECT_EQ(pieces({'s', 't', 'a', 'x'}), (std::vector<std::string>{"", "", "sta", "", ""}));
}

TEST_F(TextStreamTest, HeldBackTextIsShownAtTheEnd) {
  stops = {"stop"};
  EXPECT_EQ(pieces({'a', 's', 't', 'o'}), (std::vector<std::string>{"a", "", "", "", "sto"}));
  EXPECT_EQ(reason, "length");
  EXPECT_EQ(pieces({'s', 's', 't', 'o', 'p'}), (std::vector<std::string>{"", "s", "", "", "", ""}));
}

TEST_F(TextStreamTest, SpecialTokensAreNotText) {
  EXPECT_EQ(pieces({'a', ByteModel::kTurnEnd}, true), (std::vector<std::string>{"a", "", ""}));
  EXPECT_EQ(reason, "stop");
}

TEST_F(TextStreamTest, TokensAreShownWithTheirText) {
  stops = {"cd"};
  TextStream stream(*model_.text(), stops, true);
  const auto ids = [](const TextStream::Piece& piece) {
    std::vector<int32_t> out;
    for (const ShownToken& token : piece.tokens) out.push_back(token.chosen.token);
    return out;
  };
  const std::vector<TokenChoice> top = {{'z', -0.5F}};
  stream.add({'a', -1.0F}, top);
  const auto first = stream.take();
  EXPECT_EQ(ids(first), (std::vector<int32_t>{'a'}));
  EXPECT_EQ(first.tokens[0].top[0].token, 'z');
  stream.add({'c', -1.0F}, top);
  EXPECT_TRUE(stream.take().empty());
  stream.add({'b', -1.0F}, top);
  const auto second = stream.take();
  EXPECT_EQ(second.text, "cb");
  EXPECT_EQ(ids(second), (std::vector<int32_t>{'c', 'b'}));
  EXPECT_EQ(second.tokens[1].offset, 2);
  stream.add({'c', -1.0F}, top);
  stream.add({'d', -1.0F}, top);
  stream.finish(true);
  EXPECT_TRUE(stream.take().empty());
  EXPECT_TRUE(stream.drained());
}

// Clients count the log-probabilities: one for each generated token.
TEST_F(TextStreamTest, TokensWithoutTextHaveAnEntryToo) {
  TextStream stream(*model_.text(), stops, true);
  for (const int32_t token : std::vector<int32_t>{ByteModel::kTurnEnd, 'a', 259, 'b', ByteModel::kTurnEnd}) {
    stream.add({token, -1.0F}, {});
  }
  stream.finish(true);
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets;
  std::string text;
  while (!stream.drained()) {  // two at a time
    const TextStream::Piece piece = stream.take(100, 2);
    ASSERT_FALSE(piece.empty());
    ASSERT_LE(piece.tokens.size(), 2U);
    text += piece.text;
    for (const ShownToken& token : piece.tokens) {
      ids.push_back(token.chosen.token);
      offsets.push_back(token.offset);
    }
  }
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(ids, (std::vector<int32_t>{ByteModel::kTurnEnd, 'a', 259, 'b', ByteModel::kTurnEnd}));
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace tuft::openai
