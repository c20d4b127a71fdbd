#include "tokenizer/splitter.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "tokenizer/byte_level.h"
#include "tokenizer/normalizer.h"

namespace tuft::tokenizer {
namespace {

// The words of GPT-2.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A match, the text between two matches, or some of them that are one word.
struct Range {
  size_t begin;
  size_t end;
  bool match;  // of the last of them
};

std::string to_byte_level(std::string_view word) {
  std::string out;
  out.reserve(2 * word.size());
  for (const char c : word) out += byte_to_utf8(static_cast<uint8_t>(c));
  return out;
}

std::string replace_spaces(std::string_view text, std::string_view with) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += with;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

// Returns true if a match, or the text between two matches, is part of the same word as the one before it.
bool Splitter::joins(Behavior behavior, bool previous_match, bool match) {
  switch (behavior) {
    case Behavior::kMergedWithPrevious:
      return match && !previous_match;
    case Behavior::kMergedWithNext:
      return !match && previous_match;
    case Behavior::kContiguous:
      return match == previous_match;
    case Behavior::kRemoved:
    case Behavior::kIsolated:
      return false;
  }
  return false;
}

Status Splitter::cut(const Split& by, std::string_view text, const Take& take) {
  Range word{0, 0, false};  // ends where the ranges end that were seen
  const auto pass_on = [&]() -> Status {
    if (word.begin == word.end || (by.behavior == Behavior::kRemoved && word.match)) return {};
    return take(text.substr(word.begin, word.end - word.begin));
  };
  const auto add = [&](const Range& next) -> Status {
    if (next.begin == next.end) return {};
    if (word.begin < word.end && joins(by.behavior, word.match, next.match)) {
      word = {word.begin, next.end, next.match};
      return {};
    }
    TUFT_TRY(pass_on());
    word = next;
    return {};
  };
  const auto add_match = [&](size_t begin, size_t end) -> Status {
    TUFT_TRY(add({word.end, begin, by.invert}));
    return add({begin, end, !by.invert});
  };
  TUFT_TRY(by.pattern.for_each_match(text, add_match));
  TUFT_TRY(add({word.end, text.size(), by.invert}));
  return pass_on();
}

// Passes on what the steps from number `step` on make of a text, which is not empty.
Status Splitter::run(size_t step, std::string_view text, bool at_start, const Take& take) const {
  if (step == steps_.size()) return take(text);
  const Take next = [&](std::string_view word) { return run(step + 1, word, std::exchange(at_start, false), take); };
  if (const auto* by = std::get_if<Split>(&steps_[step])) return cut(*by, text, next);
  if (const auto* bytes = std::get_if<ByteLevel>(&steps_[step])) {
    const Take encoded = [&](std::string_view word) { return next(to_byte_level(word)); };
    std::string with_space;
    if (bytes->add_prefix_space && !text.starts_with(' ')) text = with_space.append(1, ' ').append(text);
    return bytes->use_regex ? cut({bytes->pattern, Behavior::kIsolated, false}, text, encoded) : encoded(text);
  }
  const auto& meta = std::get<Metaspace>(steps_[step]);
  std::string replaced = replace_spaces(text, meta.replacement);
  const bool wanted =
      meta.prepend == Metaspace::Prepend::kAlways || (meta.prepend == Metaspace::Prepend::kFirst && at_start);
  if (wanted && !replaced.starts_with(meta.replacement)) replaced.insert(0, meta.replacement);
  if (!meta.split) return next(replaced);
  return cut({Pattern::literal(meta.replacement), Behavior::kMergedWithNext, false}, replaced, next);
}

Status Splitter::split(std::string_view text, bool at_start, const Take& take) const {
  return text.empty() ? Status() : run(0, text, at_start, take);
}

Result<Splitter::Step> Splitter::read_split(const Json& part, std::string_view origin) {
  static constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  TUFT_ASSIGN(Pattern pattern, read_pattern(member(part, "pattern"), origin));
  const std::string name = text(part, "behavior");
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return Step(Split{std::move(pattern), behavior, flag(part, "invert", false)});
  }
  return malformed(origin, "a Split has the unknown behavior '" + name + "'");
}

Result<Splitter::Step> Splitter::read_step(const Json& part, std::string_view origin) {
  const std::string type = type_of(part);
  if (type == "Split") return read_split(part, origin);
  if (type == "Digits") {
    TUFT_ASSIGN(Pattern pattern, Pattern::compile("\\p{N}", origin));
    const bool single = flag(part, "individual_digits", false);
    return Step(Split{std::move(pattern), single ? Behavior::kIsolated : Behavior::kContiguous, false});
  }
  if (type == "ByteLevel") {
    TUFT_ASSIGN(Pattern pattern, Pattern::compile(kByteLevelPattern, origin));
    return Step(ByteLevel{flag(part, "add_prefix_space", true), flag(part, "use_regex", true), std::move(pattern)});
  }
  if (type == "Metaspace") {
    // Older files say add_prefix_space.
    const std::string scheme = text(part, "prepend_scheme", flag(part, "add_prefix_space", true) ? "always" : "never");
    const auto prepend = scheme == "always"  ? Metaspace::Prepend::kAlways
                         : scheme == "first" ? Metaspace::Prepend::kFirst
                                             : Metaspace::Prepend::kNever;
    return Step(Metaspace{text(part, "replacement", "\xE2\x96\x81"), prepend, flag(part, "split", true)});
  }
  return unsupported(origin, "pre-tokenizer '" + type + "' is not read");
}

Result<Splitter> Splitter::read(const Json& part, std::string_view origin) {
  Splitter out;
  for (const Json* step : parts_of(part, "pretokenizers")) {
    TUFT_ASSIGN(Step read, read_step(*step, origin));
    out.steps_.push_back(std::move(read));
  }
  return out;
}

}  // namespace tuft::tokenizer
