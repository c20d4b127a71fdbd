// The `added_tokens` of a tokenizer.json: texts that become one token each. They are found before the text is split.
#pragma once

#include <cstdint>
#include <functional>
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

// A part of a text: an added token, or the text between two of them.
struct Piece {
  size_t begin = 0;
  size_t end = 0;
  std::optional<int32_t> token;
};

// Finds added tokens in a text from left to right; at each position the longest one wins. Its const methods are
// thread-safe.
class TokenFinder {
 public:
  void add(const AddedToken& token, std::string content);
  // Divides the text into pieces, which cover all of it in order, and passes each to `take` until it returns an error,
  // which is returned.
  Status cut(std::string_view text, const std::function<Status(const Piece&)>& take) const;

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
