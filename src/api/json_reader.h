// Reads the JSON bodies of requests. A body is checked whole (syntax, UTF-8) before a field is read; unknown fields are
// ignored; null is the same as absent. Every problem found is remembered, so that a handler reads all its fields first
// and asks status() once: the error (malformed_request) names each bad field and the rule it breaks, never a value.
//
//   JsonBody body(exchange.body);
//   JsonFields fields = body.fields();
//   const std::string name = fields.string("name", "");
//   const int64_t count = fields.required_integer("count", 1, 100);
//   TUFT_TRY(body.status());
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::api {

// What is wrong with a body. At most five problems are told.
class JsonProblems {
 public:
  void add(std::string_view where, std::string_view rule);
  Status status() const;

 private:
  std::string text_;
  int count_ = 0;
};

// The fields of one object. Getters return a neutral value where they note a problem. Lives no longer than its
// JsonBody.
class JsonFields {
 public:
  // `value`: null where there is no such object; then nothing is found and no problem noted. `where`: path of the
  // object in the body, "" for the body itself.
  JsonFields(const simdjson::dom::element* value, std::string where, JsonProblems& problems);

  bool has(std::string_view key) const { return value(key).has_value(); }
  // True for null, too.
  bool mentions(std::string_view key) const;

  std::string string(std::string_view key, std::string_view fallback) const;
  std::string required_string(std::string_view key) const;
  // An id as this server makes them: 1 to 256 of [A-Za-z0-9._:-].
  std::string required_id(std::string_view key) const;

  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const;
  std::optional<int64_t> optional_integer(std::string_view key, int64_t min = std::numeric_limits<int64_t>::min(),
                                          int64_t max = std::numeric_limits<int64_t>::max()) const;
  // A seed: any 64-bit integer, signed or not.
  std::optional<uint64_t> optional_bits(std::string_view key) const;
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;

  // string -> string; numbers and booleans become their JSON text, null leaves the key out.
  std::map<std::string, std::string> string_map(std::string_view key) const;
  std::map<std::string, double> number_map(std::string_view key) const;
  std::vector<std::string> string_list(std::string_view key) const;

  // Nothing where the key is absent or not an object.
  std::optional<JsonFields> object(std::string_view key) const;
  std::optional<JsonFields> required_object(std::string_view key) const;
  void for_each_object(std::string_view key, bool required, const std::function<void(const JsonFields&)>& visit) const;
  // Every key of this object whose value is an object.
  void for_each_member(const std::function<void(std::string_view key, const JsonFields&)>& visit) const;

  // The raw value; nothing for absent or null.
  std::optional<simdjson::dom::element> value(std::string_view key) const;
  void problem(std::string_view key, std::string_view rule) const;

 private:
  std::string path(std::string_view key) const;

  simdjson::dom::object object_;
  bool valid_ = false;
  std::string where_;
  JsonProblems* problems_;
};

class JsonBody {
 public:
  // `text` gets spare room behind its end; it must outlive this.
  explicit JsonBody(std::string& text);

  JsonFields fields();
  Status status() const { return problems_.status(); }

 private:
  std::unique_ptr<simdjson::dom::parser> own_parser_;
  simdjson::dom::element root_;
  bool parsed_ = false;
  JsonProblems problems_;
};

// "must be an integer from 1 to 9"
std::string integer_rule(int64_t min, int64_t max);

// True for 1 to 256 of [A-Za-z0-9._:-].
bool is_id(std::string_view text);

// Appends every number of `array`, an integer in min..max; false at the first that is not.
bool append_integers(simdjson::dom::element array, int64_t min, int64_t max, std::vector<int32_t>& out);

}  // namespace tuft::api
