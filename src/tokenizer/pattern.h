// A regular expression of a tokenizer: Oniguruma's syntax as far as tokenizers use it, run by PCRE2.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::tokenizer {

// Immutable; thread-safe.
class Pattern {
 public:
  static Result<Pattern> compile(std::string_view expression, std::string_view origin);
  // Of this text as it stands.
  static Pattern literal(std::string_view text);

  // Calls take(begin, end) for each match, from left to right; matches are not empty and do not overlap. `text` is
  // valid UTF-8. kInternal where the expression needs more steps than PCRE2 allows.
  Status for_each_match(std::string_view text, const std::function<void(size_t begin, size_t end)>& take) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string literal_;
};

}  // namespace tuft::tokenizer
