// The syntax tree of a parsed template. Immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "chat/value.h"

namespace tuft::chat {

struct FilterEntry;  // filters.h
struct TestEntry;    // tests.h

namespace ast {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
using Exprs = std::vector<ExprPtr>;
struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Arguments {
  Exprs positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  Exprs items;
};
struct TupleLiteral {
  Exprs items;
};
struct DictLiteral {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Concat {
  Exprs parts;
};
enum class UnaryOperator : uint8_t { kNot, kMinus };
struct Unary {
  UnaryOperator op;
  ExprPtr operand;
};
enum class BinaryOperator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo };
struct Binary {
  BinaryOperator op;
  ExprPtr left;
  ExprPtr right;
};
struct Logical {
  bool is_or;
  ExprPtr left;
  ExprPtr right;
};
enum class CompareOperator : uint8_t { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
// a < b <= c
struct Compare {
  ExprPtr first;
  std::vector<std::pair<CompareOperator, ExprPtr>> rest;
};
struct Conditional {
  ExprPtr test;
  ExprPtr then;
  ExprPtr otherwise;  // null: undefined
};
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Subscript {
  ExprPtr object;
  ExprPtr index;
};
// Missing parts are null.
struct Slice {
  ExprPtr object;
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};
struct Call {
  ExprPtr callee;
  Arguments arguments;
};
struct Filter {
  ExprPtr input;  // null: the text of the enclosing FilterBlock
  const FilterEntry* filter;
  Arguments arguments;
};
struct Test {
  ExprPtr input;
  const TestEntry* test;
  Arguments arguments;
};

struct Expr {
  std::variant<Constant, Name, ListLiteral, TupleLiteral, DictLiteral, Concat, Unary, Binary, Logical, Compare,
               Conditional, Attribute, Subscript, Slice, Call, Filter, Test>
      node;
  int line = 0;
  int depth = 1;  // of the tree below, this node included
};

// The target of {% set %}: a name, or an attribute of the namespace `name`.
struct Target {
  std::string name;
  std::string attribute;  // empty: the name itself
};

struct Text {
  std::string text;
};
struct Output {
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct For {
  std::vector<std::string> names;
  bool unpacks = false;  // every item has one value for each name
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  Block body;
  Block otherwise;
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  Block body;
};
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  Exprs defaults;  // of the last parameters
  Block body;
  bool uses_caller = false;  // the body reads the name `caller`
};
// {% call callee(...) %}body{% endcall %}: the callee can call the body by the name `caller`.
struct CallBlock {
  Macro caller;
  ExprPtr call;
};
struct FilterBlock {
  ExprPtr filter;  // a chain of Filter; the input of the innermost one is null
  Block body;
};
// {% generation %} marks the text of an assistant for training. It does not change the output.
struct Generation {
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Text, Output, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, Generation, Break, Continue> node;
  int line = 0;
};

struct Template {
  Block body;
  std::set<std::string, std::less<>> names;  // all names that expressions read
};

}  // namespace ast
}  // namespace tuft::chat
