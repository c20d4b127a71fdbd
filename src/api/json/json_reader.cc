#include "api/json/json_reader.h"

#include <algorithm>
#include <cmath>

#include "api/json/error_mapping.h"

namespace tuft::api {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr int kProblemsTold = 5;
// Larger bodies use a separate parser, so that the thread's parser does not keep their memory.
constexpr size_t kThreadParserBytesMax = 256 << 10;

simdjson::dom::parser& thread_parser() {
  thread_local simdjson::dom::parser parser;
  return parser;
}

// Accepts 8.0 as 8, because some clients have no integer type.
std::optional<int64_t> as_integer(element value) {
  int64_t integer = 0;
  if (value.get_int64().get(integer) == simdjson::SUCCESS) return integer;
  double real = 0;
  if (value.type() == element_type::DOUBLE && value.get_double().get(real) == simdjson::SUCCESS &&
      std::nearbyint(real) == real && std::abs(real) < 9e15) {
    return static_cast<int64_t>(real);
  }
  return std::nullopt;
}

}  // namespace

std::string integer_rule(int64_t min, int64_t max) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  if (min == kLowest && max == kHighest) return "must be an integer";
  if (max == kHighest) return "must be an integer of at least " + std::to_string(min);
  return "must be an integer from " + std::to_string(min) + " to " + std::to_string(max);
}

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= 256 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == ':' || c == '-';
  });
}

namespace {

bool is_plain(std::string_view name) {
  return name.size() <= 64 && is_id(name);
}

}  // namespace

std::string shown_name(std::string_view name) {
  return is_plain(name) ? "'" + std::string(name) + "'" : "with an unreadable name";
}

bool has_null(element value) {
  simdjson::dom::array items;
  if (value.get_array().get(items) != simdjson::SUCCESS) return false;
  return std::any_of(items.begin(), items.end(), [](element item) { return item.is_null(); });
}

bool append_integers(element array, int64_t min, int64_t max, std::vector<int32_t>& out) {
  simdjson::dom::array items;
  if (array.get_array().get(items) != simdjson::SUCCESS) return false;
  out.reserve(out.size() + items.size());
  for (const element item : items) {
    const std::optional<int64_t> integer = as_integer(item);
    if (!integer || *integer < min || *integer > max) return false;
    out.push_back(static_cast<int32_t>(*integer));
  }
  return true;
}

// ---- JsonProblems

void JsonProblems::add(std::string_view where, std::string_view rule) {
  if (++count_ > kProblemsTold) return;
  if (!text_.empty()) text_.append("; ");
  text_.append(where.substr(0, 200)).append(": ").append(rule);
}

void JsonProblems::add_unknown(std::string_view where) {
  ++unknown_;
  add(where, "is not a field that this server knows");
}

void JsonProblems::add_null(std::string_view where, std::string_view rule) {
  ++nulls_;
  add(where, rule);
}

Status JsonProblems::status() const {
  if (count_ == 0) return {};
  const std::string more =
      count_ <= kProblemsTold ? std::string() : "; and " + std::to_string(count_ - kProblemsTold) + " more";
  if (unknown_ + nulls_ == count_) {
    return invalid_argument(text_ + more, unknown_ > 0 ? "unknown_field" : "null_number");
  }
  return malformed_request(text_ + more);
}

// ---- JsonBody

JsonBody::JsonBody(std::string& text) {
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  simdjson::dom::parser* parser = &thread_parser();
  if (text.size() > kThreadParserBytesMax) {
    own_parser_ = std::make_unique<simdjson::dom::parser>();
    parser = own_parser_.get();
  }
  if (text.empty()) {
    problems_.add("body", "is empty; it must be a JSON object");
  } else if (const auto code = parser->parse(text.data(), text.size(), false).get(root_); code != simdjson::SUCCESS) {
    problems_.add("body", std::string("is not valid JSON: ") + simdjson::error_message(code));
  } else if (!root_.is_object()) {
    problems_.add("body", "must be a JSON object");
  } else {
    parsed_ = true;
  }
  if (!parsed_) root_ = element();
}

JsonFields JsonBody::fields() {
  return JsonFields(parsed_ ? &root_ : nullptr, "", problems_);
}

// ---- JsonFields

JsonFields::JsonFields(const element* value, std::string where, JsonProblems& problems)
    : where_(std::move(where)), problems_(&problems) {
  valid_ = value != nullptr && value->get_object().get(object_) == simdjson::SUCCESS;
}

std::string JsonFields::path(std::string_view key) const {
  return where_.empty() ? std::string(key) : where_ + "." + std::string(key);
}

// A missing object is one problem; its fields are not reported as well.
void JsonFields::problem(std::string_view key, std::string_view rule) const {
  if (valid_) problems_->add(path(key), rule);
}

void JsonFields::null_problem(std::string_view key, std::string_view rule, bool in_list) const {
  const std::string_view place = in_list ? "; one of them is null" : "; it is null";
  if (valid_) {
    problems_->add_null(path(key),
                        std::string(rule).append(place).append(", which clients write for NaN and infinity"));
  }
}

std::optional<element> JsonFields::value(std::string_view key) const {
  element found;
  if (!valid_ || object_.at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
  return found;
}

bool JsonFields::mentions(std::string_view key) const {
  return valid_ && object_.at_key(key).error() == simdjson::SUCCESS;
}

std::string JsonFields::string(std::string_view key, std::string_view fallback) const {
  const std::optional<element> found = value(key);
  if (!found) return std::string(fallback);
  std::string_view text;
  if (found->get_string().get(text) != simdjson::SUCCESS) problem(key, "must be a string");
  return std::string(text);
}

std::string JsonFields::required_string(std::string_view key) const {
  if (!has(key)) problem(key, "is required");
  return string(key, "");
}

std::string JsonFields::required_id(std::string_view key) const {
  const std::optional<element> found = value(key);
  std::string_view text;
  if (!found) {
    problem(key, "is required");
  } else if (found->get_string().get(text) != simdjson::SUCCESS || !is_id(text)) {
    problem(key, "must be an id: a string of letters, digits and ._:-");
    text = {};
  }
  return std::string(text);
}

std::optional<int64_t> JsonFields::optional_integer(std::string_view key, int64_t min, int64_t max) const {
  const std::optional<element> found = value(key);
  if (!found) return std::nullopt;
  const std::optional<int64_t> integer = as_integer(*found);
  if (integer && *integer >= min && *integer <= max) return integer;
  problem(key, integer_rule(min, max));
  return std::nullopt;
}

int64_t JsonFields::required_integer(std::string_view key, int64_t min, int64_t max) const {
  if (!mentions(key)) {
    problem(key, "is required");
  } else if (!has(key)) {
    null_problem(key, integer_rule(min, max));
  }
  return optional_integer(key, min, max).value_or(min);
}

std::optional<uint64_t> JsonFields::optional_bits(std::string_view key) const {
  const std::optional<element> found = value(key);
  if (!found) return std::nullopt;
  uint64_t bits = 0;
  if (found->get_uint64().get(bits) == simdjson::SUCCESS) return bits;
  if (const std::optional<int64_t> integer = as_integer(*found)) return static_cast<uint64_t>(*integer);
  problem(key, "must be a 64-bit integer");
  return std::nullopt;
}

double JsonFields::number(std::string_view key, double fallback) const {
  element found;
  if (!valid_ || object_.at_key(key).get(found) != simdjson::SUCCESS) return fallback;
  double real = 0;
  if (found.is_null()) {
    null_problem(key, "must be a number");
  } else if (!found.is_number() || found.get_double().get(real) != simdjson::SUCCESS) {
    problem(key, "must be a number");
  }
  return real;
}

double JsonFields::required_number(std::string_view key) const {
  if (!mentions(key)) problem(key, "is required");
  return number(key, 0.0);
}

void JsonFields::only(std::initializer_list<std::string_view> keys) const {
  if (!valid_) return;
  for (const auto [name, member] : object_) {
    if (std::find(keys.begin(), keys.end(), name) != keys.end()) continue;
    // Only what looks like the name of a field is repeated to the client.
    problems_->add_unknown(path(is_plain(name) ? name : "a member whose name is not a plain word"));
  }
}

bool JsonFields::boolean(std::string_view key, bool fallback) const {
  const std::optional<element> found = value(key);
  if (!found) return fallback;
  bool flag = false;
  if (found->get_bool().get(flag) != simdjson::SUCCESS) problem(key, "must be true or false");
  return flag;
}

std::map<std::string, std::string> JsonFields::string_map(std::string_view key) const {
  std::map<std::string, std::string> result;
  const std::optional<element> found = value(key);
  if (!found) return result;
  simdjson::dom::object members;
  if (found->get_object().get(members) != simdjson::SUCCESS) {
    problem(key, "must be an object of strings");
    return result;
  }
  for (const auto [name, member] : members) {
    if (member.is_null()) continue;
    if (member.is_object() || member.is_array()) {
      problem(key, "must be an object of strings");
      return {};
    }
    std::string_view text;
    const bool is_text = member.get_string().get(text) == simdjson::SUCCESS;
    result.emplace(name, is_text ? std::string(text) : simdjson::to_string(member));
  }
  return result;
}

std::vector<std::string> JsonFields::string_list(std::string_view key) const {
  std::vector<std::string> result;
  const std::optional<element> found = value(key);
  if (!found) return result;
  simdjson::dom::array items;
  bool good = found->get_array().get(items) == simdjson::SUCCESS;
  if (good) {
    for (const element item : items) {
      std::string_view text;
      good = item.get_string().get(text) == simdjson::SUCCESS;
      if (!good) break;
      result.emplace_back(text);
    }
  }
  if (!good) problem(key, "must be a list of strings");
  return result;
}

std::optional<JsonFields> JsonFields::object(std::string_view key) const {
  const std::optional<element> found = value(key);
  if (!found) return std::nullopt;
  if (!found->is_object()) {
    problem(key, "must be an object");
    return std::nullopt;
  }
  return JsonFields(&*found, path(key), *problems_);
}

std::optional<JsonFields> JsonFields::required_object(std::string_view key) const {
  if (!has(key)) problem(key, "is required");
  return object(key);
}

void JsonFields::for_each_object(std::string_view key, bool required,
                                 const std::function<void(const JsonFields&)>& visit) const {
  const std::optional<element> found = value(key);
  if (!found) {
    if (required) problem(key, "is required");
    return;
  }
  simdjson::dom::array items;
  if (found->get_array().get(items) != simdjson::SUCCESS) {
    problem(key, "must be a list of objects");
    return;
  }
  size_t index = 0;
  const int before = problems_->count();
  for (const element item : items) {
    const std::string element_key = std::string(key) + "[" + std::to_string(index++) + "]";
    if (!item.is_object()) {
      problem(element_key, "must be an object");
      return;
    }
    visit(JsonFields(&item, path(element_key), *problems_));
    if (problems_->count() > before) return;
  }
}

void JsonFields::for_each_member(const std::function<void(std::string_view key, const JsonFields&)>& visit) const {
  if (!valid_) return;
  const int before = problems_->count();
  for (const auto [name, member] : object_) {
    if (!member.is_object()) {
      problem(name, "must be an object");
      return;
    }
    visit(name, JsonFields(&member, path(name), *problems_));
    if (problems_->count() > before) return;
  }
}

void JsonFields::refuse_null(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (mentions(key) && !has(key)) {
      problems_->add_null(path(key), "must not be null; leave it out for its default");
    }
  }
}

}  // namespace tuft::api
