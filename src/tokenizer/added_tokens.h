// The `added_tokens` of a tokenizer.json: texts that stand for one token each, found before anything else is cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"
#include "tokenizer/normalizer.h"

namespace tuft::tokenizer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
};

// A stretch of text: an added token, or what lies between.
struct Piece {
  size_t begin = 0;
  size_t end = 0;
  std::optional<int32_t> token;
};

// Finds tokens in texts: at each place the longest, from left to right. Immutable; thread-safe.
class TokenFinder {
 public:
  void add(const AddedToken& token, std::string content);
  std::vector<Piece> cut(std::string_view text) const;

 private:
  struct Entry {
    std::string content;
    AddedToken token;
  };
  const Entry* match_at(std::string_view text, size_t at) const;

  std::unordered_map<char, std::vector<Entry>> by_first_byte_;  // longest first
};

Result<std::vector<AddedToken>> read_added_tokens(const Json& file, std::string_view origin);

}  // namespace tuft::tokenizer
