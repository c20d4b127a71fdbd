// From token ids back to bytes, as a Hugging Face tokenizer.json says: byte-level BPE (GPT-2, Llama 3, Qwen) and
// SentencePiece-style BPE (Llama 2: U+2581 for a space, <0xNN> for a byte).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace tuft::tokenizer {

// Immutable; thread-safe.
class Decoder {
 public:
  // Reads <directory>/tokenizer.json. kNotFound, kInvalidArgument (malformed), kUnimplemented (another kind, named).
  static Result<Decoder> load(const std::filesystem::path& directory);
  static Result<Decoder> parse(std::string_view tokenizer_json, std::string_view origin);
  // From a file that is parsed already.
  static Result<Decoder> read(const nlohmann::json& file, std::string_view origin);

  // What the token adds in the middle of a text; may be a part of a UTF-8 character. Added tokens are their content.
  // Empty for an id that the tokenizer does not have (models pad their vocabulary).
  std::string token_bytes(int32_t id) const;
  // One above the highest id.
  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }

 private:
  std::vector<std::string> bytes_;
};

}  // namespace tuft::tokenizer
