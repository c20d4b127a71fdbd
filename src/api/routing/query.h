// Reads the query of a request. Unknown keys are ignored, and of a repeated key the last one counts, unless only() is
// called. Problems are collected as in JsonFields: a handler reads all its fields and then asks status() once.
//
//   QueryFields query(exchange.query);
//   const control::PageRequest page = query.page(20, 500);
//   TUFT_TRY(query.status());
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/json/json_reader.h"
#include "control/types/page.h"

namespace tuft::api {

class QueryFields {
 public:
  // `query` is still encoded: "limit=20&offset=0", with '+' or "%20" for a space.
  explicit QueryFields(std::string_view query);

  bool has(std::string_view key) const { return find(key) != nullptr; }

  // The getters return `fallback` if the key is absent or a problem is noted.
  int64_t integer(std::string_view key, int64_t fallback, int64_t min, int64_t max);
  // Returns text of at most `bytes_max` bytes without control characters; nothing if it is absent or empty.
  std::optional<std::string> text(std::string_view key, size_t bytes_max);
  // Requires that the value is one of `words`.
  std::string_view word(std::string_view key, std::string_view fallback, std::initializer_list<std::string_view> words);
  // Reads the keys `limit` and `offset`.
  control::PageRequest page(int64_t limit_default, int64_t limit_max);

  // Reads a number that is not negative, such as 1.5.
  double number(std::string_view key, double fallback, double max);

  // Notes a problem for each key that is not among `keys`, and for each that comes twice or cannot be read.
  void only(const std::vector<std::string_view>& keys);

  void problem(std::string_view key, std::string_view rule) { problems_.add(key, rule); }
  Status status() const { return problems_.status(); }

 private:
  const std::string* find(std::string_view key) const;

  std::map<std::string, std::string, std::less<>> fields_;
  JsonProblems problems_;
  bool is_unread_ = false;  // a key could not be decoded, or there are too many
  std::vector<std::string> repeated_;
};

// Replaces `out` with the decoded text. Returns false for an invalid escape.
bool percent_decode(std::string_view text, std::string& out);

}  // namespace tuft::api
