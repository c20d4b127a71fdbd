// The `normalizer` of a tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, and sequences of
// them.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"
#include "tokenizer/pattern.h"

namespace tuft::tokenizer {

// Immutable and thread-safe.
class Normalizer {
 public:
  static Result<Normalizer> read(const Json& part, std::string_view origin);
  // Requires that `text` is valid UTF-8.
  Result<std::string> apply(std::string_view text) const;

 private:
  struct Form {
    int options;  // of utf8proc
  };
  struct Lowercase {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string with;
  };
  struct Strip {
    bool left;
    bool right;
  };
  using Step = std::variant<Form, Lowercase, Prepend, Replace, Strip>;

  static Result<Step> read_step(const Json& part, std::string_view origin);
  static Result<std::string> run(const Step& step, std::string text);

  std::vector<Step> steps_;
};

// Reads a pattern of a tokenizer.json: {"String": ..} or {"Regex": ..}.
Result<Pattern> read_pattern(const Json& pattern, std::string_view origin);

}  // namespace tuft::tokenizer
