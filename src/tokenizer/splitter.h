// The `pre_tokenizer` of a tokenizer.json: splits a text into words; BPE merges only within a word. Supports ByteLevel,
// Metaspace, Split, Digits, and sequences of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  // Passes the words of `text` to `take` in order, until it returns an error, which is returned. No list of them is
  // made, because it would take many times the memory of the text. `at_start` says that the text is at the start of the
  // input.
  using Take = std::function<Status(std::string_view word)>;
  Status split(std::string_view text, bool at_start, const Take& take) const;

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

  static Result<Step> read_step(const Json& part, std::string_view origin);
  static Result<Step> read_split(const Json& part, std::string_view origin);
  static bool joins(Behavior behavior, bool previous_match, bool match);
  static Status cut(const Split& by, std::string_view text, const Take& take);
  Status run(size_t step, std::string_view text, bool at_start, const Take& take) const;

  std::vector<Step> steps_;
};

}  // namespace tuft::tokenizer
