#include "tokenizer/splitter.h"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "tokenizer/byte_level.h"
#include "tokenizer/normalizer.h"

namespace tuft::tokenizer {
namespace {

// The words of GPT-2.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Range {
  size_t begin;
  size_t end;
  bool match;
};

std::string to_byte_level(std::string_view word) {
  std::string out;
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

// Returns the matches and the text between them, in order, without empty pieces.
Result<std::vector<Range>> find_ranges(const Pattern& pattern, std::string_view text, bool invert) {
  std::vector<Range> ranges;
  size_t done = 0;
  TUFT_TRY(pattern.for_each_match(text, [&](size_t begin, size_t end) {
    if (begin > done) ranges.push_back({done, begin, invert});
    ranges.push_back({begin, end, !invert});
    done = end;
  }));
  if (done < text.size()) ranges.push_back({done, text.size(), invert});
  return ranges;
}

std::vector<Range> merge_with_previous(const std::vector<Range>& ranges) {
  std::vector<Range> out;
  bool previous_match = false;
  for (const Range& range : ranges) {
    if (range.match && !previous_match && !out.empty()) {
      out.back().end = range.end;
    } else {
      out.push_back(range);
    }
    previous_match = range.match;
  }
  return out;
}

std::vector<Range> merge_with_next(const std::vector<Range>& ranges) {
  std::vector<Range> out;
  bool next_match = false;
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
    if (range->match && !next_match && !out.empty()) {
      out.back().begin = range->begin;
    } else {
      out.push_back(*range);
    }
    next_match = range->match;
  }
  return {out.rbegin(), out.rend()};
}

std::vector<Range> merge_alike(const std::vector<Range>& ranges) {
  std::vector<Range> out;
  for (const Range& range : ranges) {
    if (!out.empty() && out.back().match == range.match) {
      out.back().end = range.end;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> Splitter::cut(const Split& by, std::string_view text) {
  TUFT_ASSIGN(std::vector<Range> ranges, find_ranges(by.pattern, text, by.invert));
  if (by.behavior == Behavior::kMergedWithPrevious) ranges = merge_with_previous(ranges);
  if (by.behavior == Behavior::kMergedWithNext) ranges = merge_with_next(ranges);
  if (by.behavior == Behavior::kContiguous) ranges = merge_alike(ranges);
  Words words;
  for (const Range& range : ranges) {
    if (by.behavior == Behavior::kRemoved && range.match) continue;
    words.emplace_back(text.substr(range.begin, range.end - range.begin));
  }
  return words;
}

Result<Splitter::Words> Splitter::run(const Step& step, std::string text, bool at_start) {
  if (const auto* by = std::get_if<Split>(&step)) return cut(*by, text);
  if (const auto* bytes = std::get_if<ByteLevel>(&step)) {
    if (bytes->add_prefix_space && !text.starts_with(' ')) text.insert(0, 1, ' ');
    Words words{std::move(text)};
    if (bytes->use_regex) {
      TUFT_ASSIGN(words, cut({bytes->pattern, Behavior::kIsolated, false}, words.front()));
    }
    for (std::string& word : words) word = to_byte_level(word);
    return words;
  }
  const auto& meta = std::get<Metaspace>(step);
  std::string replaced = replace_spaces(text, meta.replacement);
  const bool wanted =
      meta.prepend == Metaspace::Prepend::kAlways || (meta.prepend == Metaspace::Prepend::kFirst && at_start);
  if (wanted && !replaced.starts_with(meta.replacement)) replaced.insert(0, meta.replacement);
  if (!meta.split) return Words{std::move(replaced)};
  return cut({Pattern::literal(meta.replacement), Behavior::kMergedWithNext, false}, replaced);
}

Result<std::vector<std::string>> Splitter::split(std::string text, bool at_start) const {
  Words words;
  if (!text.empty()) words.push_back(std::move(text));
  for (const Step& step : steps_) {
    Words next;
    for (size_t i = 0; i < words.size(); ++i) {
      TUFT_ASSIGN(Words cut_words, run(step, std::move(words[i]), at_start && i == 0));
      for (std::string& word : cut_words) next.push_back(std::move(word));
    }
    words = std::move(next);
  }
  return words;
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
