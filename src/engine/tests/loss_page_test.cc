// Compares the table of docs/losses.md with the losses of the code. TUFT_UPDATE_GOLDEN=1 writes the table.
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "engine/loss/loss.h"

namespace tuft::engine {
namespace {

constexpr const char* kPage = "docs/losses.md";
const std::string kBegin = "<!-- losses: begin -->\n";
const std::string kEnd = "<!-- losses: end -->";

// Returns the shortest decimal that reads back as `value`.
std::string decimal(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string code(std::string_view name) {
  return "`" + std::string(name) + "`";
}

std::string row_of(std::string_view name) {
  const auto loss = make_loss(std::string(name), {}).value();
  std::string inputs;
  for (const LossInput& input : loss->inputs()) {
    inputs += (inputs.empty() ? "" : ", ") + code(input.name);
    if (input.fallback) inputs += " (" + decimal(*input.fallback) + ")";
  }
  std::string keys;
  for (const LossKey& key : loss_keys(name)) {
    keys += (keys.empty() ? "" : ", ") + code(key.name) + " " + decimal(key.fallback);
  }
  return "| " + code(name) + " | " + inputs + " | " + (keys.empty() ? "none" : keys) + " |\n";
}

std::string table() {
  std::string text =
      "| loss | inputs besides `target_tokens` | keys of `loss_fn_config`, with defaults |\n|---|---|---|\n";
  for (const std::string_view name : loss_names()) text += row_of(name);
  return text;
}

TEST(LossPage, TableIsThatOfTheCode) {
  std::ifstream file(kPage);
  std::stringstream read;
  read << file.rdbuf();
  std::string page = read.str();
  const size_t begin = page.find(kBegin) + kBegin.size();
  const size_t end = page.find(kEnd);
  ASSERT_NE(end, std::string::npos) << kPage;
  const std::string written = page.substr(begin, end - begin);
  if (std::getenv("TUFT_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kPage) << page.replace(begin, end - begin, table());
    return;
  }
  EXPECT_EQ(written, table());
}

TEST(LossPage, EveryLossHasASection) {
  std::ifstream file(kPage);
  std::stringstream read;
  read << file.rdbuf();
  for (const std::string_view name : loss_names()) {
    EXPECT_NE(read.str().find("\n## " + std::string(name) + "\n"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tuft::engine
