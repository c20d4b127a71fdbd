// A value that a template computes with. It behaves as the Python value of the same name does in Jinja.
//
// Values are immutable and cheap to copy: copies share their contents. Namespaces, loops and iterators are the
// exceptions: they change, and copies see the change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "chat/budget.h"

namespace tuft::chat {

class Value;
using Values = std::vector<Value>;
using String = std::shared_ptr<const std::string>;

// The deepest nesting of containers. It bounds the recursion of every function that walks a value; a template that
// nests deeper fails.
inline constexpr int kMaxValueDepth = 100;

// The value of a name, attribute or item that does not exist. It prints nothing and is false; any other use fails
// with the message `why`.
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

class Dict;
using DictRef = std::shared_ptr<const Dict>;

// The result of d.keys(), d.values() or d.items().
struct DictView {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  DictRef dict;
  Part part;
};

// The result of range(). Every number is below 2^40 in magnitude.
struct Range {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t size() const;
};

// The result of a filter that is a generator in Jinja, such as map. It can be walked once and has no length.
struct Iterator {
  Values items;
  size_t next = 0;
  int depth = 1;
};

struct Namespace;  // owned by the renderer, because namespaces can refer to each other in cycles
struct Loop;       // the name `loop` in the body of a for
struct Callable;   // a macro, a function, or a method bound to its object

// It has more than 25 methods: a constructor, a test and a getter for each of its types.
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
  Value(const char*) = delete;                                                // it would convert to bool

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&state_);
  }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(state_);
  }
  // Each of these returns null if the value is of another type.
  const std::string* text() const { return is<String>() ? std::get<String>(state_).get() : nullptr; }
  const Values* sequence() const;  // the items of a list or a tuple
  const Dict* dict() const { return is<DictRef>() ? std::get<DictRef>(state_).get() : nullptr; }
  std::optional<int64_t> integer() const;  // of a bool or an int
  std::optional<double> number() const;    // of a bool, an int or a float

  // Returns bool(x) of Python.
  bool truthy() const;
  // Returns Python's name of the type, for example "str".
  std::string_view type_name() const;
  int depth() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, String, List, Tuple, DictRef, DictView, Range,
               std::shared_ptr<Iterator>, Namespace*, std::shared_ptr<Loop>, std::shared_ptr<const Callable>>
      state_;
};

struct Loop {
  Values items;       // the items that have passed the filter so far
  Values unfiltered;  // the filter has not seen the items from `next_unfiltered` on
  size_t next_unfiltered = 0;
  std::function<Result<bool>(const Value&)> accepts;  // the filter; set only while the loop runs
  size_t index = 0;                                   // of the current item, from 0
  int depth = 1;

  // Returns whether the loop has an item at `at`. It filters only as far as needed, as Jinja does: the body can change
  // what the filter sees.
  Result<bool> reaches(size_t at);
};

// The only object whose attributes a template can set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Callable {
  enum class Kind : uint8_t { kMacro, kFunction, kMethod };
  Kind kind;
  std::string name;
  Value receiver;                 // of a method
  const void* closure = nullptr;  // of a macro; the renderer owns it
};

// Keeps the order of insertion. Keys are strings and integers; templates use no others.
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };

  // Replaces the value of a key that exists. Fails for a key of another type, and if the value is nested too deep.
  Status insert(Budget& budget, Value key, Value value);
  // Returns null if the key does not exist.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;
  // Key to position. Clients choose the keys, and could choose such that collide in a hash table.
  std::map<std::string_view, size_t> strings_;
  std::map<int64_t, size_t> integers_;
  int depth_ = 1;
};

// Returns an error with the reason "template_failed": the template does not work on this conversation.
Error template_error(std::string message);
// Returns an error with the reason "template_unsupported": rendering needs something outside the subset. `what` is a
// noun phrase.
Error unsupported_here(std::string what);

Undefined undefined(std::string why);

// These make a value and charge its memory to the budget.
Result<Value> make_string(Budget& budget, std::string text);
Result<Value> make_list(Budget& budget, Values items);
Result<Value> make_tuple(Budget& budget, Values items);
Result<Value> make_iterator(Budget& budget, Values items);
Result<Value> make_dict(Budget& budget, Dict dict);
// Makes a value without a budget, for constants.
Value string_value(std::string text);

// Python's == and <. `less_than` fails for values that Python does not order.
Result<bool> equals(Budget& budget, const Value& left, const Value& right);
Result<bool> less_than(Budget& budget, const Value& left, const Value& right);

// Returns list(x) of Python. It leaves an iterator empty.
Result<Values> items_of(Budget& budget, const Value& value);
// Returns len(x) of Python; the length of a string is in code points.
Result<int64_t> length_of(Budget& budget, const Value& value);

}  // namespace tuft::chat
