// A template's source as tokens. White space around tags is settled here, by the rules of Jinja with trim_blocks and
// lstrip_blocks on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::chat {

enum class TokenKind : uint8_t {
  kData,           // text: what stands outside tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // text: without quotes and escapes
  kInteger,  // integer
  kFloat,    // number
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// kInvalidArgument with the line; the last token is kEnd.
Result<std::vector<Token>> tokenize(std::string_view source);

// "chat template, line 3: ..."
Error syntax_error(int line, const std::string& what);
Error not_supported(int line, const std::string& what);

}  // namespace tuft::chat
