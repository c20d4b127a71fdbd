// A YAML document as a tree with line numbers. Duplicate keys are refused, aliases expanded, and ${...} resolved.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tuft::config {

struct Node {
  enum class Kind : uint8_t { kNull, kScalar, kMap, kList };
  struct Entry;

  Kind kind = Kind::kNull;
  int line = 1;
  std::string text;               // kScalar, as written, without quotes
  bool quoted = false;            // a quoted "null" is text
  bool from_environment = false;  // must not be shown in a message
  std::vector<Entry> entries;     // kMap, in the file's order
  std::vector<Node> items;        // kList

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_map() const { return kind == Kind::kMap; }
  bool is_list() const { return kind == Kind::kList; }
  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
};

struct Node::Entry {
  std::string key;
  int line = 0;
  Node value;
};

// Returns true for the words that YAML reads as null if they are not quoted.
bool is_null_word(std::string_view text);

// Parses a document; an empty one is a null node. Error messages have the form "origin:line: problem".
Result<Node> parse_document(std::string_view yaml, std::string_view origin);

// Replaces ${oc.env:NAME}, ${oc.env:NAME,default} and ${path.to.key} (also path[0].key) in all scalar values, as
// OmegaConf does. "\${" means "${". A path must lead to a scalar.
Status interpolate(Node& root, std::string_view origin);

}  // namespace tuft::config
