// Converts text to tokens and back, as a Hugging Face tokenizer.json defines: byte-level BPE (GPT-2, Llama 3, Qwen) and
// SentencePiece-style BPE (Llama 2). Other kinds are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/splitter.h"

namespace tuft::tokenizer {

// The reason of the error for a text that has more tokens than EncodeOptions::tokens_max.
inline constexpr std::string_view kTooManyTokens = "too_many_tokens";

// The most memory that encode() takes for each byte of a text: some 50 for the copies, symbols and merges of a word, or
// less for those and the tokens. What a normalizer adds to the text (EncodeOptions::charge) counts like the text.
inline constexpr int64_t kEncodeBytes = 64;

// The length from which on a word is left to Encoding::advance().
inline constexpr size_t kLongWordBytes = 4 << 10;

struct EncodeOptions {
  // Adds the tokens that the post-processor of the file puts around a text, such as a beginning-of-text token.
  bool add_special_tokens = true;
  // A text with more tokens is refused once the word has been encoded that exceeds it.
  size_t tokens_max = std::numeric_limits<size_t>::max();
  // If set, called with the number of bytes by which a normalizer has made the text longer (NFKC: up to ten times as
  // many as it had), before these are encoded. Its error ends the encoding and is returned.
  std::function<Status(size_t bytes)> charge = {};
};

class Tokenizer;

// A text that is being encoded in turns. For one thread at a time. The tokenizer must outlive it.
class Encoding {
 public:
  // Takes at most `steps` steps of the merges of long words; kStepsOfByte are enough for a byte of them. Returns true
  // when the text is encoded, or the error for too many tokens.
  Result<bool> advance(size_t steps);
  // The tokens, once advance() has returned true.
  std::vector<int32_t> take() { return std::move(tokens_); }

 private:
  friend class Tokenizer;
  struct LongWord {
    size_t place;  // in `others_`, of the token that follows it
    std::string text;
  };

  Encoding(const Bpe& model, size_t tokens_max) : model_(&model), tokens_max_(tokens_max) {}
  Status check() const;
  void pass_others(size_t end);

  const Bpe* model_;
  size_t tokens_max_;
  std::vector<int32_t> others_;  // the tokens of what is no long word
  size_t passed_ = 0;            // of `others_`, to `tokens_`
  std::vector<LongWord> long_words_;
  size_t merged_ = 0;              // of `long_words_`
  std::optional<Bpe::Word> word_;  // the next one, if it has been started
  std::vector<int32_t> tokens_;
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  // Reads <directory>/tokenizer.json. Returns kNotFound, kInvalidArgument for a malformed file, or kUnimplemented for a
  // kind of tokenizer that is not supported. `origin` names the file in error messages.
  static Result<Tokenizer> load(const std::filesystem::path& directory);
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view origin);

  // Takes O(n log n) time in the length of the longest word or, if a normalizer puts them in order, the most combining
  // marks in a row. Returns kInvalidArgument if `text` is not UTF-8, and with kTooManyTokens. Takes up to kEncodeBytes
  // of memory for each byte of `text` and of what a normalizer adds to it.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Begins to do the same in turns: divides the text into words, in time in proportion to its length, and encodes those
  // that are not long.
  Result<Encoding> start(std::string_view text, const EncodeOptions& options = {}) const;

  // Replaces bytes that are not UTF-8 by U+FFFD.
  std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens = true) const;

  std::optional<int32_t> id(std::string_view token) const;
  bool is_special(int32_t token) const { return special_.contains(token); }
  const Decoder& decoder() const { return decoder_; }

 private:
  Tokenizer() = default;

  Status read_template(const Json& processor, std::string_view origin);
  Status encode_text(std::string_view text, bool at_start, const EncodeOptions& options, Encoding& out) const;
  Status encode_piece(std::string_view text, bool at_start, Encoding& out) const;

  Normalizer normalizer_;
  Splitter splitter_;
  Bpe model_;
  Decoder decoder_;
  TokenFinder raw_tokens_;         // found in the original text
  TokenFinder normalized_tokens_;  // found after normalization
  std::unordered_map<std::string, int32_t> added_;
  std::unordered_set<int32_t> special_;
  std::vector<int32_t> prefix_;  // of the post-processor's template
  std::vector<int32_t> suffix_;
  // SentencePiece adds a space before the first word; decoding removes it.
  bool strip_first_space_ = false;
};

}  // namespace tuft::tokenizer
