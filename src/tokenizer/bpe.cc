#include "tokenizer/bpe.h"

#include <array>
#include <cstdio>
#include <functional>
#include <queue>
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

std::vector<Bpe::Symbol> Bpe::symbols_of(std::string_view word) const {
  std::vector<int32_t> ids;
  ids.reserve(word.size());
  std::string decorated;
  bool previous_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    next_character(word, at);
    std::string_view character = word.substr(begin, at - begin);
    if (!prefix_.empty() || !suffix_.empty()) {
      decorated = begin > 0 ? prefix_ : "";
      decorated += character;
      if (at == word.size()) decorated += suffix_;
      character = decorated;
    }
    if (const auto found = id(character)) {
      ids.push_back(*found);
      previous_unknown = false;
    } else {
      append_unknown(character, ids, previous_unknown);
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  const int count = static_cast<int>(ids.size());
  for (int i = 0; i < count; ++i) symbols.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  return symbols;
}

void Bpe::merge_all(std::vector<Symbol>& symbols) const {
  // Each merge takes one candidate and offers two at most.
  std::vector<Candidate> room;
  room.reserve(2 * symbols.size());
  std::priority_queue<Candidate> candidates(std::less<Candidate>(), std::move(room));
  const auto at = [&](int position) -> Symbol& { return symbols[static_cast<size_t>(position)]; };
  const auto offer = [&](int position) {
    if (position < 0 || at(position).next < 0) return;
    if (const Merge* merge = merge_of(at(position).id, at(at(position).next).id))
      candidates.push({merge->rank, position, merge->id});
  };
  for (int i = 0; i < static_cast<int>(symbols.size()); ++i) offer(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = at(best.position);
    if (left.dead || left.next < 0) continue;
    Symbol& right = at(left.next);
    // One of its symbols may have been merged since it was queued.
    const Merge* merge = merge_of(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;
    left.id = best.id;
    right.dead = true;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = best.position;
    offer(left.previous);
    offer(best.position);
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const auto whole = id(word)) {
      out.push_back(*whole);
      return;
    }
  }
  std::vector<Symbol> symbols = symbols_of(word);
  merge_all(symbols);
  for (const Symbol& symbol : symbols) {
    if (!symbol.dead) out.push_back(symbol.id);
  }
}

}  // namespace tuft::tokenizer
