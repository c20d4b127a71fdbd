// The `pre_tokenizer` of a tokenizer.json: splits a text into words; BPE merges only within a word. Supports ByteLevel,
// Metaspace, Split, Digits, and sequences of them.
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
class Splitter {
 public:
  static Result<Splitter> read(const Json& part, std::string_view origin);
  // `at_start` says that the text is at the start of the input.
  Result<std::vector<std::string>> split(std::string text, bool at_start) const;

 private:
  enum class Behavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    Pattern pattern;
    Behavior behavior;
    bool invert;
  };
  struct ByteLevel {
    bool add_prefix_space;
    bool use_regex;
    Pattern pattern;
  };
  struct Metaspace {
    enum class Prepend : uint8_t { kAlways, kFirst, kNever };
    std::string replacement;
    Prepend prepend;
    bool split;
  };
  using Step = std::variant<Split, ByteLevel, Metaspace>;
  using Words = std::vector<std::string>;

  static Result<Step> read_step(const Json& part, std::string_view origin);
  static Result<Step> read_split(const Json& part, std::string_view origin);
  static Result<Words> cut(const Split& by, std::string_view text);
  static Result<Words> run(const Step& step, std::string text, bool at_start);

  std::vector<Step> steps_;
};

}  // namespace tuft::tokenizer
