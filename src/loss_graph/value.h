// Value: what a node of a graph is called with and what it makes. Internal to the module.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tuft::loss_graph {

// The type of an array. float32, float64, int32 and so on are not told apart: integers are exact up to 2^53, floats are
// doubles.
enum class Dtype : uint8_t { kBool, kInt, kFloat };

struct Value {
  enum class Kind : uint8_t {
    kMissing,  // an argument that the caller left out
    kNone,
    kBool,  // bool, int and float are Python numbers, known before the evaluation
    kInt,
    kFloat,
    kString,
    kDtype,
    kDevice,  // also a layout or a memory format: there is only one of each
    kEllipsis,
    kSlice,  // items: start, stop, step
    kList,   // integer: 1 for a tuple, 0 for a list
    kDict,   // keys and items; only in the output node
    kNode,   // integer: the index of an earlier node, whose value takes its place when the graph is planned
    kArray,  // integer: the step that makes it
  };
  Kind kind = Kind::kMissing;
  int64_t integer = 0;  // also 0 or 1 for kBool
  double number = 0;
  std::string text = {};
  Dtype dtype = Dtype::kFloat;
  std::vector<std::string> keys = {};
  std::vector<Value> items = {};

  static Value none() { return {.kind = Kind::kNone}; }
  static Value of_bool(bool value) { return {.kind = Kind::kBool, .integer = value ? 1 : 0}; }
  static Value of_int(int64_t value) { return {.kind = Kind::kInt, .integer = value}; }
  static Value of_float(double value) { return {.kind = Kind::kFloat, .number = value}; }
  static Value of_dtype(Dtype value) { return {.kind = Kind::kDtype, .dtype = value}; }
  static Value array(int step) { return {.kind = Kind::kArray, .integer = step}; }
  static Value list(std::vector<Value> items) { return {.kind = Kind::kList, .items = std::move(items)}; }
  static Value tuple(std::vector<Value> items) {
    return {.kind = Kind::kList, .integer = 1, .items = std::move(items)};
  }

  bool is(Kind other) const { return kind == other; }
  bool is_tuple() const { return kind == Kind::kList && integer == 1; }
  bool is_given() const { return kind != Kind::kMissing && kind != Kind::kNone; }
  bool is_number() const { return kind == Kind::kBool || kind == Kind::kInt || kind == Kind::kFloat; }
  bool is_integer() const { return kind == Kind::kBool || kind == Kind::kInt; }
  // The dtype of the array that a Python number becomes; float for all other values.
  Dtype number_dtype() const {
    return kind == Kind::kBool ? Dtype::kBool : kind == Kind::kInt ? Dtype::kInt : Dtype::kFloat;
  }
  double as_double() const { return kind == Kind::kFloat ? number : static_cast<double>(integer); }
};

}  // namespace tuft::loss_graph
