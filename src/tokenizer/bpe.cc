#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "tokenizer/utf8.h"

namespace tuft::tokenizer {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

std::string byte_token(uint8_t byte) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return text.data();
}

}  // namespace

Status Bpe::read_vocabulary(const Json& model, std::string_view origin) {
  const Json& vocabulary = member(model, "vocab");
  if (!vocabulary.is_object()) return malformed(origin, "model.vocab must be an object");
  ids_.reserve(vocabulary.size());
  for (const auto& [token, value] : vocabulary.items()) {
    int32_t number = 0;
    if (!to_id(value, &number)) return malformed(origin, "model.vocab has an invalid id");
    ids_.emplace(token, number);
  }
  return {};
}

Status Bpe::add_merge(std::string_view left, std::string_view right, std::string_view origin) {
  const auto left_id = id(left);
  const auto right_id = id(right);
  if (!left_id || !right_id) return malformed(origin, "model.merges names a token that model.vocab does not have");
  const bool inside = !prefix_.empty() && right.starts_with(prefix_);
  const auto merged = id(std::string(left).append(inside ? right.substr(prefix_.size()) : right));
  if (!merged) return malformed(origin, "model.merges makes a token that model.vocab does not have");
  merges_.emplace(pair_key(*left_id, *right_id), Merge{static_cast<int32_t>(merges_.size()), *merged});
  return {};
}

Status Bpe::read_merges(const Json& model, std::string_view origin) {
  const Json& merges = member(model, "merges");
  if (!merges.is_array()) return malformed(origin, "model.merges must be a list");
  merges_.reserve(merges.size());
  for (const Json& merge : merges) {
    // Newer files have two strings; older files have one string with a space.
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      TUFT_TRY(add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), origin));
      continue;
    }
    const std::string both = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = both.find(' ');
    if (space == std::string::npos) return malformed(origin, "model.merges has an entry that is not a pair of tokens");
    TUFT_TRY(add_merge(std::string_view(both).substr(0, space), std::string_view(both).substr(space + 1), origin));
  }
  return {};
}

Result<Bpe> Bpe::read(const Json& model, std::string_view origin) {
  if (!model.is_object()) return malformed(origin, "model is missing");
  if (const std::string type = type_of(model); type != "BPE")
    return unsupported(origin, "model type '" + type + "' is not read; BPE is");
  if (const Json& dropout = member(model, "dropout"); dropout.is_number() && dropout.get<double>() != 0)
    return unsupported(origin, "a model with dropout gives other tokens every time");
  Bpe out;
  out.prefix_ = text(model, "continuing_subword_prefix");
  out.suffix_ = text(model, "end_of_word_suffix");
  out.fuse_unknown_ = flag(model, "fuse_unk", false);
  out.byte_fallback_ = flag(model, "byte_fallback", false);
  out.ignore_merges_ = flag(model, "ignore_merges", false);
  TUFT_TRY(out.read_vocabulary(model, origin));
  TUFT_TRY(out.read_merges(model, origin));
  if (const Json& unknown = member(model, "unk_token"); unknown.is_string()) {
    out.unknown_ = out.id(unknown.get_ref<const std::string&>());
    if (!out.unknown_) return malformed(origin, "model.unk_token is not in model.vocab");
  }
  return out;
}

std::optional<int32_t> Bpe::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const Bpe::Merge* Bpe::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::append_unknown(std::string_view character, std::vector<int32_t>& ids, bool& previous_unknown) const {
  if (byte_fallback_) {
    std::vector<int32_t> bytes;
    for (const char byte : character) {
      if (const auto found = id(byte_token(static_cast<uint8_t>(byte)))) bytes.push_back(*found);
    }
    if (bytes.size() == character.size()) {
      ids.insert(ids.end(), bytes.begin(), bytes.end());
      previous_unknown = false;
      return;
    }
  }
  if (!unknown_) return;
  if (!(fuse_unknown_ && previous_unknown)) ids.push_back(*unknown_);
  previous_unknown = true;
}

void Bpe::read_character(Word& word) const {
  const size_t begin = word.read_;
  next_character(word.text_, word.read_);
  std::string_view character = std::string_view(word.text_).substr(begin, word.read_ - begin);
  std::string decorated;
  if (!prefix_.empty() || !suffix_.empty()) {
    decorated = begin > 0 ? prefix_ : "";
    decorated += character;
    if (word.read_ == word.text_.size()) decorated += suffix_;
    character = decorated;
  }
  if (const auto found = id(character)) {
    word.ids_.push_back(*found);
    word.previous_unknown_ = false;
  } else {
    append_unknown(character, word.ids_, word.previous_unknown_);
  }
}

void Bpe::link_symbol(Word& word) const {
  const size_t count = word.ids_.size();
  const size_t place = word.symbols_.size();
  if (place == 0) {
    word.symbols_.reserve(count);
    word.candidates_.reserve(2 * count);
  }
  const int position = static_cast<int>(place);
  word.symbols_.push_back({word.ids_[place], position - 1, place + 1 < count ? position + 1 : -1});
  offer(word, position - 1);
}

// Queues the merge of the symbol with the next one, if there is one.
void Bpe::offer(Word& word, int position) const {
  const auto at = [&](int place) -> const Symbol& { return word.symbols_[static_cast<size_t>(place)]; };
  if (position < 0 || at(position).next < 0) return;
  const Merge* merge = merge_of(at(position).id, at(at(position).next).id);
  if (merge == nullptr) return;
  word.candidates_.push_back({merge->rank, position, merge->id});
  std::push_heap(word.candidates_.begin(), word.candidates_.end());
}

void Bpe::merge_best(Word& word) const {
  const auto at = [&](int place) -> Symbol& { return word.symbols_[static_cast<size_t>(place)]; };
  std::pop_heap(word.candidates_.begin(), word.candidates_.end());
  const Candidate best = word.candidates_.back();
  word.candidates_.pop_back();
  Symbol& left = at(best.position);
  if (left.dead || left.next < 0) return;
  Symbol& right = at(left.next);
  // One of its symbols may have been merged since it was queued.
  const Merge* merge = merge_of(left.id, right.id);
  if (merge == nullptr || merge->id != best.id) return;
  left.id = best.id;
  right.dead = true;
  left.next = right.next;
  if (left.next >= 0) at(left.next).previous = best.position;
  offer(word, left.previous);
  offer(word, best.position);
}

Bpe::Word Bpe::start(std::string text) const {
  Word word;
  const auto whole = ignore_merges_ ? id(text) : std::nullopt;
  if (whole) {
    word.ids_.push_back(*whole);
    return word;
  }
  word.text_ = std::move(text);
  word.ids_.reserve(word.text_.size());
  return word;
}

bool Bpe::advance(Word& word, size_t& steps, std::vector<int32_t>& out) const {
  for (; word.read_ < word.text_.size(); --steps) {
    if (steps == 0) return false;
    read_character(word);
  }
  for (; word.symbols_.size() < word.ids_.size(); --steps) {
    if (steps == 0) return false;
    link_symbol(word);
  }
  for (; !word.candidates_.empty(); --steps) {
    if (steps == 0) return false;
    merge_best(word);
  }
  std::vector<Candidate>().swap(word.candidates_);  // its memory may become that of the tokens
  for (const Symbol& symbol : word.symbols_) {
    if (!symbol.dead) out.push_back(symbol.id);
  }
  return true;
}

void Bpe::encode(std::string_view text, std::vector<int32_t>& out) const {
  if (text.empty()) return;
  Word word = start(std::string(text));
  size_t steps = std::numeric_limits<size_t>::max();
  advance(word, steps, out);
}

}  // namespace tuft::tokenizer
