// From the tokens of one choice to the text that its client sees, as it grows: whole UTF-8 characters only, nothing of
// a stop string and nothing after it. What comes out is the same however the tokens are given in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/model_text.h"

namespace tuft::openai {

struct TokenChoice {
  int32_t token = 0;
  float logprob = 0;
};

// A token of the text with its log-probability.
struct ShownToken {
  TokenChoice chosen;
  std::vector<TokenChoice> top;  // most likely first
  int64_t offset = 0;            // characters of the choice's text before it
};

// Confined to one thread at a time.
class TextStream {
 public:
  // Both outlive this. `keep_tokens`: take() gives tokens too.
  TextStream(const ModelText& model, const std::vector<std::string>& stops, bool keep_tokens)
      : model_(model), stops_(stops), keep_tokens_(keep_tokens) {}

  void add(TokenChoice chosen, std::span<const TokenChoice> top);
  // The last token was there. `stopped`: the model ended by itself, or at a stop string.
  void finish(bool stopped);

  struct Piece {
    std::string text;
    std::vector<ShownToken> tokens;  // whose text begins in it
    bool empty() const { return text.empty() && tokens.empty(); }
  };
  // What can be shown now and has not been.
  Piece take();

  bool finished() const { return finished_; }
  std::string_view finish_reason() const { return stopped_ ? "stop" : "length"; }

 private:
  struct Waiting {
    ShownToken token;
    size_t begin = 0;  // bytes of the text before it
  };

  void append(std::string_view bytes);
  void decode(bool at_end);
  void cut_at_stop(size_t searched);
  size_t held_back() const;

  const ModelText& model_;
  const std::vector<std::string>& stops_;
  const bool keep_tokens_;

  std::string raw_;            // the beginning of a character
  bool in_bad_bytes_ = false;  // the rest of a broken character is still to be left out
  std::string pending_;        // text that was not shown
  size_t shown_ = 0;           // bytes that were
  int64_t characters_ = 0;     // of all the text
  std::deque<Waiting> waiting_;
  bool cut_ = false;  // a stop string stood in the text
  bool finished_ = false;
  bool stopped_ = false;
};

// Text with U+FFFD for what is no UTF-8, as take() writes it.
std::string printable(std::string_view bytes);
int64_t count_characters(std::string_view text);

}  // namespace tuft::openai
