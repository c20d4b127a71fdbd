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

// Returns the top-level object of `text`, or kInvalidArgument, with `origin`, for anything else and for a repeated key.
Result<Json> parse_json_object(std::string_view text, std::string_view origin);

// Reads members of one object; null counts as absent. status() keeps the first problem (kInvalidArgument with origin
// and key), and every later read returns its fallback, so that a caller checks once at the end.
class JsonFields {
 public:
  // Borrows `object`.
  JsonFields(const Json& object, std::string origin) : object_(object), origin_(std::move(origin)) {}

  bool has(const char* key) const;
  // Without a fallback the key is required.
  int64_t integer(const char* key, std::optional<int64_t> fallback, int64_t min, int64_t max);
  // Accepts finite numbers only.
  double number(const char* key, std::optional<double> fallback, double min, double max);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, const std::string& fallback);
  std::vector<std::string> texts(const char* key);
  // Reads an integer or a list of integers; returns an empty list if the key is absent.
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
