// A regular expression of a tokenizer. PCRE2 runs it; the syntax is the part of Oniguruma's that tokenizers use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::tokenizer {

// Immutable and thread-safe.
class Pattern {
 public:
  static Result<Pattern> compile(std::string_view expression, std::string_view origin);
  // Returns a pattern that matches exactly this text.
  static Pattern literal(std::string_view text);

  // Calls take(begin, end) for each match from left to right, until it returns an error, which is returned. Matches are
  // not empty and do not overlap. Requires that `text` is valid UTF-8. Returns kInternal if the expression needs more
  // steps than PCRE2 allows.
  Status for_each_match(std::string_view text, const std::function<Status(size_t begin, size_t end)>& take) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string literal_;
};

}  // namespace tuft::tokenizer
