#include "openai/json_tree.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tuft::openai {
namespace {

using Object = Json::object_t;
// The list that an object is; its own operator[] takes a name.
using Members = Object::Container;

// Names of an object that has no more members are compared with each other.
constexpr size_t kFewMembers = 8;

bool has_repeated_name(const Members& object) {
  for (size_t i = 1; i < object.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (object[i].first == object[j].first) return true;
    }
  }
  return false;
}

// Leaves one member of each name. Sorts instead of hashing, because names can be chosen to have the same hash.
void unite_repeated_names(Members& object) {
  if (object.size() <= kFewMembers && !has_repeated_name(object)) return;
  std::vector<uint32_t> order(object.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto same = [&](uint32_t a, uint32_t b) { return object[a].first == object[b].first; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int compared = object[a].first.compare(object[b].first);
    return compared < 0 || (compared == 0 && a < b);
  });
  if (std::adjacent_find(order.begin(), order.end(), same) == order.end()) return;
  std::vector<uint32_t> value_of(object.size());  // of the first member of each name: its last one
  std::vector<bool> is_first(object.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && same(order[begin], order[end])) ++end;
    is_first[order[begin]] = true;
    value_of[order[begin]] = order[end - 1];
  }
  Members united;
  for (size_t i = 0; i < object.size(); ++i) {
    if (is_first[i]) united.emplace_back(object[i].first, std::move(object[value_of[i]].second));
  }
  object = std::move(united);
}

// The events of nlohmann's parser, in its words.
class TreeBuilder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  static bool binary(Json::binary_t&) { return false; }  // not in JSON texts

  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool start_object(size_t) { return open(Json::object()); }
  bool key(std::string& name) {
    members().emplace_back(std::move(name), nullptr);
    return true;
  }
  bool end_object() {
    unite_repeated_names(members());
    return close();
  }
  static bool parse_error(size_t, const std::string&, const Json::exception&) { return false; }

  Json take() { return std::move(root_); }

 private:
  Members& members() { return open_.back()->get_ref<Object&>(); }
  // Returns the place of the next value. It does not move while the value is open: only the innermost container grows.
  Json& place() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return members().back().second;
    return open_.back()->get_ref<Json::array_t&>().emplace_back();
  }
  bool add(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json container) {
    Json& opened = place();
    opened = std::move(container);
    open_.push_back(&opened);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // from the outermost to the innermost
};

}  // namespace

std::optional<Json> parse_json(std::string_view text) {
  TreeBuilder builder;
  if (!Json::sax_parse(text, &builder)) return std::nullopt;
  return builder.take();
}

}  // namespace tuft::openai
