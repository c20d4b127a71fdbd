#include "config/document.h"

#include <algorithm>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/nearest.h"
#include "config/tests/model_directory.h"

namespace tuft::config {
namespace {

using ::testing::HasSubstr;

Node resolved(std::string_view yaml) {
  Result<Node> node = parse_document(yaml, "f.yaml");
  EXPECT_TRUE(node.ok()) << (node.ok() ? "" : node.error().message);
  if (!node.ok()) return {};
  const Status status = interpolate(*node, "f.yaml");
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return std::move(*node);
}

std::string failure(std::string_view yaml) {
  Result<Node> node = parse_document(yaml, "f.yaml");
  if (!node.ok()) return node.error().message;
  const Status status = interpolate(*node, "f.yaml");
  return status.ok() ? "" : status.error().message;
}

TEST(Document, KeepsLinesKindsAndQuotedNulls) {
  const Node root = resolved("a: 1\nb:\n  - x\n  - ~\nc: \"null\"\nd:\n");
  EXPECT_EQ(root.find("a")->line, 1);
  EXPECT_EQ(root.find("b")->items[0].line, 3);
  EXPECT_TRUE(root.find("b")->items[1].is_null());
  EXPECT_EQ(root.find("c")->text, "null");
  EXPECT_TRUE(root.find("c")->is_scalar());
  EXPECT_TRUE(root.find("d")->is_null());
}

TEST(Document, RefusesADuplicateKeyWithBothLines) {
  EXPECT_THAT(failure("a: 1\nb:\n  x: 1\n  x: 2\n"),
              HasSubstr("f.yaml:4: this key stands here twice; the first one is in line 3"));
}

TEST(Document, ReportsTheLineOfInvalidYaml) {
  EXPECT_THAT(failure("a: [1, 2\nb: 3\n"), HasSubstr("this is not YAML"));
  EXPECT_THAT(failure("a: 1\n\tb: 2\n"), HasSubstr("f.yaml:2:"));
  EXPECT_THAT(failure("a: 1\n---\nb: 2\n"), HasSubstr("a second document"));
  EXPECT_THAT(failure("? [1, 2]\n: 3\n"), HasSubstr("a key must be a plain word"));
}

TEST(Document, RefusesExponentialAliases) {
  std::string yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    yaml.append("a").append(std::to_string(i)).append(": &a").append(std::to_string(i)).append(" [");
    for (int j = 0; j < 10; ++j) yaml.append(j == 0 ? "*a" : ", *a").append(std::to_string(i - 1));
    yaml.append("]\n");
  }
  EXPECT_THAT(failure(yaml), HasSubstr("too large when aliases are expanded"));
}

TEST(Document, RefusesAnAliasThatContainsItself) {
  for (const char* yaml : {"a: &a [*a]\n", "a: &a {b: *a}\n", "&root\nk: *root\n", "a: &a [1, {b: [*a]}]\n"}) {
    EXPECT_THAT(failure(yaml), HasSubstr("nested more than 64 levels deep")) << yaml;
  }
}

TEST(Document, RefusesDeepNesting) {
  for (const size_t depth : {65, 1000, 500'000}) {
    EXPECT_NE(failure("a: " + std::string(depth, '[') + std::string(depth, ']') + "\n"), "") << depth;
    EXPECT_NE(failure(std::string(depth, '[')), "") << depth;
  }
}

TEST(Document, RefusesAliasesOfALongText) {
  std::string yaml = "a: &a " + std::string(1 << 19, 'x') + "\nb: [";
  for (int i = 0; i < 1000; ++i) yaml += "*a, ";
  EXPECT_THAT(failure(yaml + "1]\n"), HasSubstr("too large when aliases are expanded"));
}

TEST(Interpolation, IsLimitedInAll) {
  std::string yaml = "a: " + std::string(60'000, 'x') + "\n";
  for (int i = 0; i < 100; ++i) yaml += "b" + std::to_string(i) + ": ${a}\n";
  EXPECT_THAT(failure(yaml), HasSubstr("the document is too long"));
}

TEST(Interpolation, ReadsEnvironmentDefaultsAndOtherKeys) {
  const ScopedVariable set("TUFT_TEST_SET", "from-env"), unset("TUFT_TEST_UNSET", nullptr);
  struct Case {
    const char* value;
    const char* expected;
  };
  for (const Case& c : {
           Case{"${oc.env:TUFT_TEST_SET}", "from-env"},
           Case{"${oc.env:TUFT_TEST_SET,other}", "from-env"},
           Case{"${oc.env:TUFT_TEST_UNSET,other}", "other"},
           Case{"'${oc.env:TUFT_TEST_UNSET, \"with, comma\"}'", "with, comma"},
           Case{"${oc.env:TUFT_TEST_UNSET,${other.key}}", "elsewhere"},
           Case{"a-${oc.env:TUFT_TEST_SET}-${other.key}", "a-from-env-elsewhere"},
           Case{"${other.list[1]}", "second"},
           Case{"${other.list.0}", "first"},
           Case{"${other.chain}", "elsewhere"},
           Case{"\\${other.key}", "${other.key}"},
           Case{"$5 {x}", "$5 {x}"},
       }) {
    const Node root = resolved(std::string("v: ") + c.value +
                               "\nother:\n  key: elsewhere\n  chain: ${other.key}\n  list: [first, second]\n");
    EXPECT_EQ(root.find("v")->text, c.expected) << c.value;
  }
  EXPECT_TRUE(resolved("v: ${oc.env:TUFT_TEST_UNSET,null}\n").find("v")->is_null());
  EXPECT_TRUE(resolved("v: ${oc.env:TUFT_TEST_SET}\n").find("v")->from_environment);
}

TEST(Interpolation, ReportsUnresolvableExpressions) {
  const ScopedVariable unset("TUFT_TEST_UNSET", nullptr);
  struct Case {
    const char* yaml;
    const char* message;
  };
  for (const Case& c : {
           Case{"v: ${oc.env:TUFT_TEST_UNSET}", "f.yaml:1: the environment variable TUFT_TEST_UNSET is not set"},
           Case{"v: ${oc.env:}", "needs the name"},
           Case{"v: ${nothing.here}", "refers to a key that is not in this file"},
           Case{"v: ${w", "is not closed"},
           Case{"v: ${v}", "refers to itself"},
           Case{"v: ${w}\nw: ${v}", "refers to itself"},
           Case{"v: ${w}\nw: {x: 1}", "a single value"},
           Case{"v: ${oc.decode:1}", "one resolver"},
           Case{"v: ${.w}", "relative references"},
           Case{"v: ${l[9]}\nl: [1]", "refers to a key that is not in this file"},
       }) {
    EXPECT_THAT(failure(c.yaml), HasSubstr(c.message)) << c.yaml;
  }
}

TEST(Nearest, FindsTheClosestKnownWord) {
  const std::vector<std::string_view> known = {"model_name", "model_path", "max_model_len", "max_lora_rank"};
  EXPECT_EQ(nearest_word("modle_name", known), "model_name");
  EXPECT_EQ(nearest_word("max_lora_rnk", known), "max_lora_rank");
  EXPECT_EQ(nearest_word("entirely_different", known), "");
  constexpr std::string_view kShort[] = {"host"};
  EXPECT_EQ(nearest_word("ho", kShort), "host") << "two letters are missing";
  EXPECT_EQ(nearest_word("h", kShort), "");
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

TEST(Nearest, CountsNoFurtherThanEnough) {
  std::mt19937 random(3);
  const auto word = [&] {
    std::string text(random() % 8, ' ');
    for (char& letter : text) letter = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::string a = word();
    const std::string b = word();
    const size_t enough = random() % 8;
    ASSERT_EQ(edit_distance(a, b, enough), std::min(edit_distance(a, b), enough)) << a << ' ' << b << ' ' << enough;
  }
}

}  // namespace
}  // namespace tuft::config
