// Splits the source of a template into tokens. The lexer also removes white space around tags, by the rules of Jinja
// with trim_blocks and lstrip_blocks on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::chat {

enum class TokenKind : uint8_t {
  kData,           // text outside of tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // `text` has no quotes and escapes
  kInteger,
  kFloat,
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

// Returns the tokens; the last one is kEnd. Returns kInvalidArgument or kUnimplemented with the line.
Result<std::vector<Token>> tokenize(std::string_view source);

// Both make an error whose message starts with "chat template, line 3: ". `what` of not_supported is a noun phrase.
Error syntax_error(int line, const std::string& what);
Error not_supported(int line, const std::string& what);

}  // namespace tuft::chat
