// Byte-pair encoding of one word (Sennrich et al. 2016), as the `model` of type BPE in a tokenizer.json defines it:
// starts from characters and repeatedly merges the adjacent pair with the lowest rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"

namespace tuft::tokenizer {

// Immutable and thread-safe.
class Bpe {
 public:
  class Word;

  static Result<Bpe> read(const Json& model, std::string_view origin);

  std::optional<int32_t> id(std::string_view token) const;
  // Appends the tokens of the word. A character that is not in the vocabulary becomes byte tokens or the unknown token
  // if the model has them; otherwise it is omitted.
  void encode(std::string_view word, std::vector<int32_t>& out) const;
  // Do the same in turns, for a long word. advance() takes at most `steps` steps, which it subtracts, and returns true
  // when it has appended the tokens.
  Word start(std::string text) const;
  bool advance(Word& word, size_t& steps, std::vector<int32_t>& out) const;
  size_t vocabulary_size() const { return ids_.size(); }

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  struct Symbol {
    int32_t id;
    int previous;
    int next;
    bool dead = false;
  };
  // A merge that was possible when it was queued.
  struct Candidate {
    int32_t rank;
    int position;
    int32_t id;
    // The lowest rank comes first; among equal ranks, the leftmost.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  Status read_vocabulary(const Json& model, std::string_view origin);
  Status read_merges(const Json& model, std::string_view origin);
  Status add_merge(std::string_view left, std::string_view right, std::string_view origin);

  const Merge* merge_of(int32_t left, int32_t right) const;
  void read_character(Word& word) const;
  void append_unknown(std::string_view character, std::vector<int32_t>& ids, bool& previous_unknown) const;
  void link_symbol(Word& word) const;
  void offer(Word& word, int position) const;
  void merge_best(Word& word) const;

  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::unordered_map<uint64_t, Merge> merges_;  // key: both ids
  std::optional<int32_t> unknown_;
  std::string prefix_;  // of every character but the first of a word
  std::string suffix_;  // of the last character of a word
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

// A word that is being encoded. First its characters are read, then these become symbols, then symbols are merged.
class Bpe::Word {
  friend class Bpe;

  std::string text_;
  size_t read_ = 0;  // bytes of `text_`
  bool previous_unknown_ = false;
  std::vector<int32_t> ids_;  // of the characters
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;  // a heap
};

// The most steps that a word has for each of its bytes, which may all be characters: each is read and becomes a symbol,
// which offers a candidate. A merge takes a symbol and offers two candidates at most. Each candidate is looked at once.
inline constexpr size_t kStepsOfByte = 5;

}  // namespace tuft::tokenizer
