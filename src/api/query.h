// Reads what follows the '?' of a request. Unknown keys are ignored; of a repeated key the last one counts. Every
// problem found is remembered, so that a handler reads all its fields first and asks status() once: the error
// (malformed_request) names each bad key and the rule it breaks, never a value.
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

#include "api/json_reader.h"
#include "control/page.h"

namespace tuft::api {

class QueryFields {
 public:
  // `query` as sent: "limit=20&offset=0", '+' and "%20" for a blank.
  explicit QueryFields(std::string_view query);

  bool has(std::string_view key) const { return find(key) != nullptr; }

  // What follows are getters; they return `fallback` where the key is absent or a problem is noted.
  int64_t integer(std::string_view key, int64_t fallback, int64_t min, int64_t max);
  // Text of 1 to `bytes_max` bytes without control characters; nothing for an absent or empty one.
  std::optional<std::string> text(std::string_view key, size_t bytes_max);
  // One of a few words.
  std::string_view word(std::string_view key, std::string_view fallback, std::initializer_list<std::string_view> words);
  // `limit` and `offset`.
  control::PageRequest page(int64_t limit_default, int64_t limit_max);

  void problem(std::string_view key, std::string_view rule) { problems_.add(key, rule); }
  Status status() const { return problems_.status(); }

 private:
  const std::string* find(std::string_view key) const;

  std::map<std::string, std::string, std::less<>> fields_;
  JsonProblems problems_;
};

// False for a broken escape. `out` is replaced.
bool percent_decode(std::string_view text, std::string& out);

}  // namespace tuft::api
