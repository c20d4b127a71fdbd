// Tests the substitution of environment variables in OpenTelemetry's declarative configuration.
#include <string>

#include <gtest/gtest.h>

#include "config/document.h"
#include "config/otel_file.h"
#include "config/tests/variables.h"

namespace tuft::config {
namespace {

struct Substituted {
  const char* input;
  const char* expected;  // nullptr: null
};

class OtelSubstitution : public ::testing::TestWithParam<Substituted> {};

// The table of OpenTelemetry's specification.
TEST_P(OtelSubstitution, ValueThenAsTheSpecificationSays) {
  const WithVariables variables({{"STRING_VALUE", "value"},
                                 {"BOOL_VALUE", "true"},
                                 {"FLOAT_VALUE", "1.1"},
                                 {"EMPTY", ""},
                                 {"INVALID_MAP_VALUE", "value\nkey:value"},
                                 {"DO_NOT_REPLACE_ME", "Never use this value"},
                                 {"REPLACE_ME", "${DO_NOT_REPLACE_ME}"},
                                 {"VALUE_WITH_ESCAPE", "value$$"}});
  Result<Node> root = parse_document(std::string("key: ") + GetParam().input, "x");
  ASSERT_TRUE(root.ok());
  const Status status = substitute_environment(*root, "x");
  ASSERT_TRUE(status.ok()) << status.error().message;
  const Node& value = *root->find("key");
  if (GetParam().expected == nullptr) {
    EXPECT_TRUE(value.is_null());
  } else {
    EXPECT_TRUE(value.is_scalar());
    EXPECT_EQ(value.text, GetParam().expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, OtelSubstitution,
    ::testing::Values(Substituted{"${STRING_VALUE}", "value"}, Substituted{"${BOOL_VALUE}", "true"},
                      Substituted{"\"${BOOL_VALUE}\"", "true"}, Substituted{"${env:STRING_VALUE}", "value"},
                      Substituted{"${INVALID_MAP_VALUE}", "value\nkey:value"},
                      Substituted{"foo ${STRING_VALUE} ${FLOAT_VALUE}", "foo value 1.1"},
                      Substituted{"${UNDEFINED_KEY}", nullptr}, Substituted{"\"${UNDEFINED_KEY}\"", ""},
                      Substituted{"${UNDEFINED_KEY:-fallback}", "fallback"},
                      Substituted{"${EMPTY:-fallback}", "fallback"}, Substituted{"${STRING_VALUE:-}", "value"},
                      Substituted{"${REPLACE_ME}", "${DO_NOT_REPLACE_ME}"},
                      Substituted{"${UNDEFINED_KEY:-${STRING_VALUE}}", "${STRING_VALUE}"},
                      Substituted{"$${STRING_VALUE}", "${STRING_VALUE}"}, Substituted{"$$${STRING_VALUE}", "$value"},
                      Substituted{"$$$${STRING_VALUE}", "$${STRING_VALUE}"},
                      Substituted{"$${STRING_VALUE:-fallback}", "${STRING_VALUE:-fallback}"},
                      Substituted{"$${STRING_VALUE:-${STRING_VALUE}}", "${STRING_VALUE:-value}"},
                      Substituted{"${UNDEFINED_KEY:-$${UNDEFINED_KEY}}", "${UNDEFINED_KEY:-${UNDEFINED_KEY}}"},
                      Substituted{"${VALUE_WITH_ESCAPE}", "value$$"}, Substituted{"a $$ b", "a $ b"},
                      Substituted{"a $ b", "a $ b"}, Substituted{"${}", "${}"}, Substituted{"${OPEN", "${OPEN"}));

TEST(OtelSubstitution, InvalidReferenceThenAnError) {
  for (const char* input : {"${1API_KEY}", "${API_$KEY}", "${STRING_VALUE:?error}", "${sys:x}", "${A B}"}) {
    Result<Node> root = parse_document(std::string("key: ") + input, "x");
    ASSERT_TRUE(root.ok());
    EXPECT_FALSE(substitute_environment(*root, "x").ok()) << input;
  }
}

TEST(OtelSubstitution, KeysThenAsTheyAre) {
  const WithVariables variables(Variables{{"NAME", "value"}});
  Result<Node> root = parse_document("${NAME}: ${NAME}", "x");
  ASSERT_TRUE(root.ok() && substitute_environment(*root, "x").ok());
  ASSERT_NE(root->find("${NAME}"), nullptr);
  EXPECT_EQ(root->find("${NAME}")->text, "value");
}

}  // namespace
}  // namespace tuft::config
