// Typed, checked access to the JSON files of a model directory. Internal to engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace tuft::engine {

using Json = nlohmann::json;

// The top-level object of `text`. Anything else, and a key given twice, is kInvalidArgument naming `origin`.
Result<Json> parse_json_object(std::string_view text, std::string_view origin);

// Reads members of one object; null counts as absent. The first thing that is wrong stays in status() (kInvalidArgument
// naming origin and key), and every later read gives its fallback, so that a caller checks once at the end.
class JsonFields {
 public:
  // Borrows `object`.
  JsonFields(const Json& object, std::string origin) : object_(object), origin_(std::move(origin)) {}

  bool has(const char* key) const;
  // Without a fallback the key must be there.
  int64_t integer(const char* key, std::optional<int64_t> fallback, int64_t min, int64_t max);
  // Finite numbers only.
  double number(const char* key, std::optional<double> fallback, double min, double max);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, const std::string& fallback);
  std::vector<std::string> texts(const char* key);
  // An integer or a list of them; empty where absent.
  std::vector<int32_t> integers(const char* key, int64_t min, int64_t max);

  void fail(const std::string& what);
  const Status& status() const { return status_; }
  const std::string& origin() const { return origin_; }

 private:
  const Json* find(const char* key) const;
  bool check_range(const char* key, double value, double min, double max);

  const Json& object_;
  std::string origin_;
  Status status_;
};

}  // namespace tuft::engine
