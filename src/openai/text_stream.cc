#include "openai/text_stream.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/utf8.h"

namespace tuft::openai {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool continues(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// Returns true if further bytes can complete `text` to a character.
bool is_beginning(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text.front());
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() >= length) return false;
  return std::all_of(text.begin() + 1, text.end(), continues);
}

}  // namespace

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); });
}

std::string printable(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    if (const size_t length = utf8_length(bytes.substr(at)); length > 0) {
      out += bytes.substr(at, length);
      at += length;
      continue;
    }
    out += kReplacement;
    ++at;
    while (at < bytes.size() && continues(bytes[at])) ++at;
  }
  return out;
}

void TextStream::add(TokenChoice chosen, std::span<const TokenChoice> top) {
  if (cut_ || finished_) return;
  const std::string bytes = model_.visible_bytes(chosen.token);
  // A token without text is a token of the answer nevertheless: clients count on one log-probability for each.
  if (keep_tokens_) {
    waiting_.push_back({{chosen, {top.begin(), top.end()}, characters_}, shown_ + pending_.size()});
  }
  raw_ += bytes;
  decode(false);
}

void TextStream::decode(bool at_end) {
  const size_t before = pending_.size();
  size_t at = 0;
  while (at < raw_.size()) {
    if (in_bad_bytes_ && continues(raw_[at])) {
      ++at;
      continue;
    }
    in_bad_bytes_ = false;
    const std::string_view rest = std::string_view(raw_).substr(at);
    if (const size_t length = utf8_length(rest); length > 0) {
      pending_ += rest.substr(0, length);
      at += length;
    } else if (!at_end && is_beginning(rest)) {
      break;
    } else {
      pending_ += kReplacement;
      in_bad_bytes_ = true;
      ++at;
    }
  }
  raw_.erase(0, at);
  characters_ += count_characters(std::string_view(pending_).substr(before));
  cut_at_stop(before);
}

// Cuts the text at a stop string that ends after the first `before` bytes of pending_.
void TextStream::cut_at_stop(size_t before) {
  size_t found = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
    found = std::min(found, pending_.find(stop, from));
  }
  if (found == std::string::npos) return;
  pending_.resize(found);
  cut_ = true;
}

// Returns the number of bytes at the end that may begin a stop string.
size_t TextStream::held_back() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, pending_.size()); size > longest; --size) {
      if (pending_.ends_with(std::string_view(stop).substr(0, size))) longest = size;
    }
  }
  return longest;
}

void TextStream::finish(bool stopped) {
  if (finished_) return;
  if (!cut_) decode(true);
  finished_ = true;
  stopped_ = stopped || cut_;
}

// Returns how much of `size` bytes of pending_ a piece may have: whole characters, and the text of whole tokens.
size_t TextStream::within(size_t size, size_t bytes_max, size_t tokens_max) const {
  if (size > bytes_max) {
    size = std::max<size_t>(bytes_max, 1);
    while (size < pending_.size() && continues(pending_[size])) ++size;
  }
  if (waiting_.size() <= tokens_max) return size;
  const auto next = std::find_if(waiting_.begin() + static_cast<std::ptrdiff_t>(tokens_max), waiting_.end(),
                                 [this](const Waiting& token) { return token.begin > shown_; });
  return next == waiting_.end() ? size : std::min(size, next->begin - shown_);
}

TextStream::Piece TextStream::take(size_t bytes_max, size_t tokens_max) {
  Piece piece;
  const bool all = cut_ || finished_;
  const size_t size = within(all ? pending_.size() : pending_.size() - held_back(), bytes_max, tokens_max);
  if (size == pending_.size()) {
    piece.text = std::exchange(pending_, {});  // a long text is not copied, and its memory is not kept
  } else {
    piece.text = pending_.substr(0, size);
    pending_.erase(0, size);
  }
  shown_ += size;
  const bool at_end = finished_ && !cut_ && pending_.empty();
  // Tokens that begin after the cut are not part of the text.
  while (!waiting_.empty() && (waiting_.front().begin < shown_ || at_end) && piece.tokens.size() < tokens_max) {
    piece.tokens.push_back(std::move(waiting_.front().token));
    waiting_.pop_front();
  }
  return piece;
}

}  // namespace tuft::openai
