// Converts the tokens of a choice to the text for its client, incrementally. The text has whole UTF-8 characters only
// and ends before a stop string. It does not depend on how the tokens are split over calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
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
  // Both references must outlive this. With `keep_tokens`, take() also returns the tokens.
  TextStream(const ModelText& model, const std::vector<std::string>& stops, bool keep_tokens)
      : model_(model), stops_(stops), keep_tokens_(keep_tokens) {}

  void add(TokenChoice chosen, std::span<const TokenChoice> top);
  // Ends the text after the last token. `stopped` says that the model ended by itself or at a stop string.
  void finish(bool stopped);

  struct Piece {
    std::string text;
    std::vector<ShownToken> tokens;  // those whose text begins in `text`, and those without text
    bool empty() const { return text.empty() && tokens.empty(); }
  };
  // Returns the text that can be shown now and was not returned before, at most about `bytes_max` of it with
  // `tokens_max` tokens. It is not empty if more can be shown.
  Piece take(size_t bytes_max = std::numeric_limits<size_t>::max(),
             size_t tokens_max = std::numeric_limits<size_t>::max());

  bool finished() const { return finished_; }
  // Returns true if finished() and take() has returned everything.
  bool drained() const {
    return finished_ && pending_.empty() && (waiting_.empty() || (cut_ && waiting_.front().begin >= shown_));
  }
  std::string_view finish_reason() const { return stopped_ ? "stop" : "length"; }
  // Returns the memory of the text that take() has not returned.
  int64_t text_memory() const { return static_cast<int64_t>(pending_.capacity()); }

 private:
  struct Waiting {
    ShownToken token;
    size_t begin = 0;  // bytes of the text before it
  };

  void append(std::string_view bytes);
  void decode(bool at_end);
  void cut_at_stop(size_t searched);
  size_t held_back() const;
  size_t within(size_t size, size_t bytes_max, size_t tokens_max) const;

  const ModelText& model_;
  const std::vector<std::string>& stops_;
  const bool keep_tokens_;

  std::string raw_;            // an incomplete character
  bool in_bad_bytes_ = false;  // the rest of an invalid character must be skipped
  std::string pending_;        // text that take() has not returned
  size_t shown_ = 0;           // bytes that it has returned
  int64_t characters_ = 0;     // in the whole text
  std::deque<Waiting> waiting_;
  bool cut_ = false;  // the text was cut at a stop string
  bool finished_ = false;
  bool stopped_ = false;
};

// Replaces invalid UTF-8 by U+FFFD, as take() does.
std::string printable(std::string_view bytes);
int64_t count_characters(std::string_view text);

}  // namespace tuft::openai
