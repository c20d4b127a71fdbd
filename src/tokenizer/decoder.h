// Converts token ids to bytes, as a Hugging Face tokenizer.json defines: byte-level BPE (GPT-2, Llama 3, Qwen) and
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

// Immutable and thread-safe.
class Decoder {
 public:
  // Reads <directory>/tokenizer.json. Returns kNotFound, kInvalidArgument for a malformed file, or kUnimplemented for a
  // kind of tokenizer that is not supported. `origin` names the file in error messages.
  static Result<Decoder> load(const std::filesystem::path& directory);
  static Result<Decoder> parse(std::string_view tokenizer_json, std::string_view origin);
  // Reads a file that has been parsed.
  static Result<Decoder> read(const nlohmann::json& file, std::string_view origin);

  // Returns the bytes that the token adds inside a text, which can be a part of a UTF-8 character. Returns the content
  // of an added token, and "" for an unknown id, because models pad their vocabulary.
  std::string token_bytes(int32_t id) const;
  // Returns the highest id plus one.
  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }

 private:
  std::vector<std::string> bytes_;
};

}  // namespace tuft::tokenizer
