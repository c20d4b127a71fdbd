// Text to tokens and back, as a Hugging Face tokenizer.json says: byte-level BPE (GPT-2, Llama 3, Qwen) and
// SentencePiece-style BPE (Llama 2). What it does not read it refuses by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/splitter.h"

namespace tuft::tokenizer {

struct EncodeOptions {
  // What the file's post-processor puts around a text, such as a beginning-of-text token.
  bool add_special_tokens = true;
};

// Immutable; thread-safe.
class Tokenizer {
 public:
  // Reads <directory>/tokenizer.json. kNotFound, kInvalidArgument (malformed), kUnimplemented (another kind, named).
  static Result<Tokenizer> load(const std::filesystem::path& directory);
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view origin);

  // Time grows as n log n with the text's longest word. kInvalidArgument where `text` is not UTF-8.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Bytes that are no UTF-8 become U+FFFD.
  std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens = true) const;

  std::optional<int32_t> id(std::string_view token) const;
  bool is_special(int32_t token) const { return special_.contains(token); }
  const Decoder& decoder() const { return decoder_; }

 private:
  Tokenizer() = default;

  Status read_template(const Json& processor, std::string_view origin);
  Status encode_text(std::string_view text, bool at_start, std::vector<int32_t>& out) const;
  Status encode_piece(std::string_view text, bool at_start, std::vector<int32_t>& out) const;

  Normalizer normalizer_;
  Splitter splitter_;
  Bpe model_;
  Decoder decoder_;
  TokenFinder raw_tokens_;         // found in the text as it is
  TokenFinder normalized_tokens_;  // found after normalization
  std::unordered_map<std::string, int32_t> added_;
  std::unordered_set<int32_t> special_;
  std::vector<int32_t> prefix_;  // of the post-processor's template
  std::vector<int32_t> suffix_;
  // SentencePiece writes a space in front of the first word, which decoding takes away again.
  bool strip_first_space_ = false;
};

}  // namespace tuft::tokenizer
