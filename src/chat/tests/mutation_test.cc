// Damages templates at random. Each must parse or be refused, render or fail, and never hang or crash.
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat/chat_template.h"

namespace tuft::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRounds = 6000;

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> sources) : sources_(std::move(sources)) {}

  std::string next() {
    std::string text = pick(sources_);
    const size_t changes = 1 + below(4);
    for (size_t i = 0; i < changes; ++i) change(text);
    return text;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void change(std::string& text) {
    static const std::vector<std::string> parts = {"{{",
                                                   "}}",
                                                   "{%",
                                                   "%}",
                                                   "{#",
                                                   "#}",
                                                   "-",
                                                   "(",
                                                   ")",
                                                   "[",
                                                   "]",
                                                   "|",
                                                   ".",
                                                   ",",
                                                   "'",
                                                   "\"",
                                                   "\n",
                                                   " ",
                                                   "~",
                                                   "**",
                                                   "0",
                                                   "-1",
                                                   "1e308",
                                                   "none",
                                                   "loop",
                                                   "self",
                                                   "messages",
                                                   "if x",
                                                   "else",
                                                   "in",
                                                   "not",
                                                   "is",
                                                   "range(9)",
                                                   "*999999",
                                                   "|tojson",
                                                   "|list",
                                                   "[::-1]",
                                                   "[0]",
                                                   ".items()",
                                                   "|join",
                                                   "\\",
                                                   "caller()",
                                                   "{% endfor %}",
                                                   "{% endif %}",
                                                   "{% break %}",
                                                   "|sort",
                                                   "|map('upper')",
                                                   "namespace()",
                                                   "\xC3\xA9",
                                                   "|int",
                                                   "9223372036854775807"};
    const size_t at = below(text.size() + 1);
    switch (below(4)) {
      case 0:
        text.erase(at, below(12));
        break;
      case 1:
        text.insert(at, pick(parts));
        break;
      case 2: {
        const std::string& other = pick(sources_);
        const size_t from = below(other.size());
        text.insert(at, other.substr(from, below(60)));
        break;
      }
      default: {
        const size_t from = below(text.size());
        text.insert(at, text.substr(from, below(40)));
      }
    }
  }

  std::mt19937 random_{20'250'101};
  std::vector<std::string> sources_;
};

TEST(ChatTemplateMutations, DamagedTemplatesThenTextOrError) {
  std::ifstream in("tests/parity/data/chat/shared.json");
  const Json shared = Json::parse(in);
  std::vector<std::string> sources;
  for (const auto& [name, source] : shared.at("templates").items()) sources.push_back(source.get<std::string>());
  std::vector<Json> chats;
  for (const auto& [name, chat] : shared.at("chats").items()) chats.push_back(chat);
  Mutator mutator(std::move(sources));
  RenderOptions options;
  options.limits = {.output_bytes = 1 << 20, .memory_bytes = 8 << 20, .steps = 20'000, .depth = 100};
  const Json tools =
      Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])");
  options.tools = &tools;
  size_t parsed_count = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto parsed = ChatTemplate::parse(mutator.next());
    if (!parsed.ok()) {
      EXPECT_FALSE(parsed.error().message.empty());
      continue;
    }
    ++parsed_count;
    const auto text = parsed->render(chats[static_cast<size_t>(i) % chats.size()], options);
    EXPECT_LE(text.ok() ? text->size() : 0, options.limits.output_bytes);
  }
  // With fewer, the test would hardly reach the renderer.
  EXPECT_GT(parsed_count, kRounds / 10);
}

}  // namespace
}  // namespace tuft::chat
