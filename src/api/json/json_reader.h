// Reads the JSON bodies of requests.
//
// The room json/ promises: the syntax and the UTF-8 of a body are checked before any field is read; no error message
// contains a value from the body; what the writers produce is valid JSON for every input.
//
// Null is the same as absent, except where a number is expected: clients write NaN as null, and it must not become a
// default. refuse_null() refuses it elsewhere. Unknown fields are ignored, unless only() refuses them. A getter notes
// each problem that it finds. A handler reads all its fields and then asks status() once; the error names each bad
// field and the rule it breaks.
//
//   JsonBody body(exchange.body);
//   JsonFields fields = body.fields();
//   const std::string name = fields.string("name", "");
//   const int64_t count = fields.required_integer("count", 1, 100);
//   TUFT_TRY(body.status());
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
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

inline constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// Collects the problems of a body. The error names at most five of them.
class JsonProblems {
 public:
  void add(std::string_view where, std::string_view rule);
  // A field that nobody reads.
  void add_unknown(std::string_view where);
  // A null where a number belongs.
  void add_null(std::string_view where, std::string_view rule);
  // Returns malformed_request (422). If each problem is an unknown field or a null, the body has the right form and
  // asks for what this server does not do: then the error is "unknown_field" or "null_number" (400).
  Status status() const;
  int count() const { return count_; }

 private:
  std::string text_;
  int count_ = 0;
  int unknown_ = 0;  // of count_
  int nulls_ = 0;    // of count_
};

// Reads the fields of one object. A getter that notes a problem returns a neutral value. The JsonBody must outlive it.
class JsonFields {
 public:
  // If `value` is null, every field counts as absent and no problem is noted. `where` is the path of the object in the
  // body, "" for the body itself.
  JsonFields(const simdjson::dom::element* value, std::string where, JsonProblems& problems);

  bool has(std::string_view key) const { return value(key).has_value(); }
  // Returns true if the key is present, even with the value null.
  bool mentions(std::string_view key) const;

  std::string string(std::string_view key, std::string_view fallback) const;
  std::string required_string(std::string_view key) const;
  // Reads an id (see is_id()).
  std::string required_id(std::string_view key) const;

  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const;
  std::optional<int64_t> optional_integer(std::string_view key, int64_t min = std::numeric_limits<int64_t>::min(),
                                          int64_t max = std::numeric_limits<int64_t>::max()) const;
  // Reads a 64-bit integer, signed or unsigned, such as a seed.
  std::optional<uint64_t> optional_bits(std::string_view key) const;
  // Returns `fallback` if the key is absent. Null is a problem.
  double number(std::string_view key, double fallback) const;
  double required_number(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const;

  // Reads an object of strings. Numbers and booleans become their JSON text; null members are left out.
  std::map<std::string, std::string> string_map(std::string_view key) const;
  std::vector<std::string> string_list(std::string_view key) const;

  // Returns an empty value if the key is absent or its value is not an object.
  std::optional<JsonFields> object(std::string_view key) const;
  std::optional<JsonFields> required_object(std::string_view key) const;
  // These two end after the first element with a problem.
  void for_each_object(std::string_view key, bool required, const std::function<void(const JsonFields&)>& visit) const;
  // Visits every member of this object; a member that is not an object is a problem.
  void for_each_member(const std::function<void(std::string_view key, const JsonFields&)>& visit) const;

  // Notes a problem for each of `keys` whose value is null: for those that have another default.
  void refuse_null(std::initializer_list<std::string_view> keys) const;

  // Returns the raw value; empty if it is absent or null.
  std::optional<simdjson::dom::element> value(std::string_view key) const;
  void problem(std::string_view key, std::string_view rule) const;
  // Notes a null, where `rule` asks for a number or, if `in_list`, for numbers.
  void null_problem(std::string_view key, std::string_view rule, bool in_list = false) const;
  // Notes a problem for each member of this object that is not among `keys`. It is named if its name is a short plain
  // word.
  void only(std::initializer_list<std::string_view> keys) const;

 private:
  std::string path(std::string_view key) const;

  simdjson::dom::object object_;
  bool valid_ = false;
  std::string where_;
  JsonProblems* problems_;
};

class JsonBody {
 public:
  // Reserves padding behind the end of `text`, which must outlive the JsonBody.
  explicit JsonBody(std::string& text);

  JsonFields fields();
  Status status() const { return problems_.status(); }

 private:
  std::unique_ptr<simdjson::dom::parser> own_parser_;
  simdjson::dom::element root_;
  bool parsed_ = false;
  JsonProblems problems_;
};

// Returns, for instance, "must be an integer from 1 to 9".
std::string integer_rule(int64_t min, int64_t max);

// Returns a name from a body as messages show it: in quotes if it is short and plain, else "with an unreadable name".
std::string shown_name(std::string_view name);

// Returns true for 1 to 256 characters of [A-Za-z0-9._:-], the form of the ids that this server makes.
bool is_id(std::string_view text);

// Returns true if `value` is an array that has a null.
bool has_null(simdjson::dom::element value);

// Appends the integers of `array` to `out`. Returns false at the first element that is not an integer in min..max.
bool append_integers(simdjson::dom::element array, int64_t min, int64_t max, std::vector<int32_t>& out);

}  // namespace tuft::api
