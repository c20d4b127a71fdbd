// A value of a template: Python's, as far as templates see them. Values are immutable and shared, except namespaces,
// loops and iterators, as in Jinja.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "chat/budget.h"

namespace tuft::chat {

class Value;
using Values = std::vector<Value>;
using String = std::shared_ptr<const std::string>;

// Containers in each other; beyond, a template error. Keeps every walk over a value short of the stack's end.
inline constexpr int kMaxValueDepth = 100;

// A name that is not there: prints nothing, is false, and fails with `why` when it is used.
struct Undefined {
  String why;
};
struct None {};

struct Sequence {
  Values items;
  int depth = 1;
};
struct List {
  std::shared_ptr<const Sequence> sequence;
};
struct Tuple {
  std::shared_ptr<const Sequence> sequence;
};

// In the order of insertion. Keys are what Python can hash.
class Dict;
using DictRef = std::shared_ptr<const Dict>;

// d.keys(), d.values(), d.items().
struct DictView {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  DictRef dict;
  Part part;
};

struct Range {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t size() const;
};

// What a Python generator is to a template: it can be walked once. The items are computed beforehand; `failure` is what
// the walk meets after them.
struct Iterator {
  Values items;
  size_t next = 0;
  std::optional<Error> failure;
  int depth = 1;
};

struct Namespace;  // owned by the rendering: values may point at each other in circles
struct Loop;       // `loop` inside a for
struct Callable;   // a macro, a method with its object, a function

class Value {
 public:
  Value() : state_(Undefined{}) {}
  Value(Undefined value) : state_(std::move(value)) {}                        // NOLINT(google-explicit-constructor)
  Value(None value) : state_(value) {}                                        // NOLINT(google-explicit-constructor)
  Value(bool value) : state_(value) {}                                        // NOLINT(google-explicit-constructor)
  Value(int64_t value) : state_(value) {}                                     // NOLINT(google-explicit-constructor)
  Value(double value) : state_(value) {}                                      // NOLINT(google-explicit-constructor)
  Value(String value) : state_(std::move(value)) {}                           // NOLINT(google-explicit-constructor)
  Value(List value) : state_(std::move(value)) {}                             // NOLINT(google-explicit-constructor)
  Value(Tuple value) : state_(std::move(value)) {}                            // NOLINT(google-explicit-constructor)
  Value(DictRef value) : state_(std::move(value)) {}                          // NOLINT(google-explicit-constructor)
  Value(DictView value) : state_(std::move(value)) {}                         // NOLINT(google-explicit-constructor)
  Value(Range value) : state_(value) {}                                       // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Iterator> value) : state_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Value(Namespace* value) : state_(value) {}                                  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Loop> value) : state_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Callable> value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Value(const char*) = delete;                                                // it would be a bool

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&state_);
  }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(state_);
  }
  const std::string* text() const { return is<String>() ? std::get<String>(state_).get() : nullptr; }
  // The items of a list or a tuple, otherwise null.
  const Values* sequence() const;
  const Dict* dict() const { return is<DictRef>() ? std::get<DictRef>(state_).get() : nullptr; }
  // Bool or int.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;

  // Python's bool(x).
  bool truthy() const;
  // Python's name of the type, e.g. "str".
  std::string_view type_name() const;
  int depth() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, String, List, Tuple, DictRef, DictView, Range,
               std::shared_ptr<Iterator>, Namespace*, std::shared_ptr<Loop>, std::shared_ptr<const Callable>>
      state_;
};

struct Loop {
  Values items;       // those that have passed the filter so far
  Values unfiltered;  // what is still to be asked about, from `next_unfiltered` on
  size_t next_unfiltered = 0;
  std::function<Result<bool>(const Value&)> accepts;  // only while the loop runs
  size_t index = 0;                                   // of the current item, from 0
  bool runs = true;                                   // its body is being rendered
  std::optional<Value> last_changed;                  // only while it runs: the value may hold the loop
  int depth = 1;

  // Whether there is an item `at`. Jinja too filters no further than it must.
  Result<bool> reaches(size_t at);
};

// What a template may set attributes of.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Callable {
  enum class Kind : uint8_t { kMacro, kFunction, kMethod };
  Kind kind;
  std::string name;
  Value receiver;                 // kMethod
  const void* closure = nullptr;  // kMacro: what the renderer made of it
};

class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };

  // A key that is there already keeps its place and gets the new value. Fails where Python cannot hash the key.
  Status insert(Budget& budget, Value key, Value value);
  // Null if there is none; fails where Python cannot hash the key.
  Result<const Value*> find(Budget& budget, const Value& key) const;
  const Value* find(std::string_view key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  Result<std::optional<size_t>> position(Budget& budget, const Value& key) const;

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  // hash to place
  int depth_ = 1;
};

// Error of a template on this conversation, reason "template_failed".
Error template_error(std::string message);
Error unsupported_here(std::string message);

Undefined undefined(std::string why);

// New values, counted.
Result<Value> make_string(Budget& budget, std::string text);
Result<Value> make_list(Budget& budget, Values items);
Result<Value> make_tuple(Budget& budget, Values items);
Result<Value> make_iterator(Budget& budget, Values items, std::optional<Error> failure = std::nullopt);
Result<Value> make_dict(Budget& budget, Dict dict);
// Without a budget, for constants.
Value string_value(std::string text);

// Python's ==, hash and <. `less_than` fails for what Python does not order.
Result<bool> equals(Budget& budget, const Value& left, const Value& right);
Result<size_t> hash_value(const Value& value);
Result<bool> less_than(Budget& budget, const Value& left, const Value& right);

// list(x): every item of what can be walked. An iterator is used up.
Result<Values> items_of(Budget& budget, const Value& value);
// The next item of an iterator; none at its end.
Result<std::optional<Value>> take_next(Iterator& iterator);
// len(x).
Result<int64_t> length_of(Budget& budget, const Value& value);
Value view_item(const DictView& view, size_t index);

}  // namespace tuft::chat
