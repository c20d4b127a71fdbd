#include "tokenizer/added_tokens.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tokenizer/utf8.h"

namespace tuft::tokenizer {
namespace {

bool ends_with_word(std::string_view text, size_t end) {
  if (end == 0) return false;
  size_t at = previous_character(text, end);
  return is_word(next_character(text, at));
}

bool starts_with_word(std::string_view text, size_t at) {
  return at < text.size() && is_word(next_character(text, at));
}

size_t spaces_before(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    size_t at = previous_character(text, begin);
    const size_t start = at;
    if (!is_space(next_character(text, at))) break;
    begin = start;
  }
  return begin;
}

size_t spaces_after(std::string_view text, size_t end) {
  while (end < text.size()) {
    size_t at = end;
    if (!is_space(next_character(text, at))) break;
    end = at;
  }
  return end;
}

}  // namespace

void TokenFinder::add(const AddedToken& token, std::string content) {
  if (content.empty()) return;
  std::vector<Entry>& entries = by_first_byte_[content.front()];
  const auto longer = [&](const Entry& entry) { return entry.content.size() >= content.size(); };
  const auto place = std::find_if_not(entries.begin(), entries.end(), longer);
  entries.insert(place, Entry{std::move(content), token});
}

const TokenFinder::Entry* TokenFinder::match_at(std::string_view text, size_t at) const {
  const auto found = by_first_byte_.find(text[at]);
  if (found == by_first_byte_.end()) return nullptr;
  const std::string_view rest = text.substr(at);
  for (const Entry& entry : found->second) {
    if (rest.starts_with(entry.content)) return &entry;
  }
  return nullptr;
}

Status TokenFinder::cut(std::string_view text, const std::function<Status(const Piece&)>& take) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Entry* entry = by_first_byte_.empty() ? nullptr : match_at(text, at);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + entry->content.size();
    at = end;
    if (entry->token.single_word && (ends_with_word(text, begin) || starts_with_word(text, end))) continue;
    if (entry->token.lstrip) begin = spaces_before(text, begin, done);
    if (entry->token.rstrip) end = spaces_after(text, end);
    if (begin > done) TUFT_TRY(take({done, begin, std::nullopt}));
    TUFT_TRY(take({begin, end, entry->token.id}));
    done = at = end;
  }
  return done < text.size() ? take({done, text.size(), std::nullopt}) : Status();
}

Result<std::vector<AddedToken>> read_added_tokens(const Json& file, std::string_view origin) {
  std::vector<AddedToken> out;
  const Json& list = member(file, "added_tokens");
  if (list.is_null()) return out;
  if (!list.is_array()) return malformed(origin, "added_tokens must be a list");
  for (const Json& token : list) {
    AddedToken added;
    if (!to_id(member(token, "id"), &added.id) || !member(token, "content").is_string())
      return malformed(origin, "each of added_tokens must have an id and a content");
    added.content = text(token, "content");
    added.special = flag(token, "special", false);
    added.single_word = flag(token, "single_word", false);
    added.lstrip = flag(token, "lstrip", false);
    added.rstrip = flag(token, "rstrip", false);
    added.normalized = flag(token, "normalized", !added.special);
    out.push_back(std::move(added));
  }
  return out;
}

}  // namespace tuft::tokenizer
