#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/document.h"

namespace tuft::config {
namespace {

constexpr std::string_view kOpen = "${";
constexpr std::string_view kEnvironment = "oc.env:";
constexpr size_t kReferenceDepthMax = 32;  // limits references to references and nested ${
// Limits values that repeat other values: each, and all together.
constexpr size_t kFilledBytesMax = 1 << 16;
constexpr size_t kAllTextBytesMax = 4 << 20;

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::string_view unquote(std::string_view text) {
  const bool in_quotes =
      text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return in_quotes ? text.substr(1, text.size() - 2) : text;
}

// The value of an expression; without a text it is null.
struct Expansion {
  std::optional<std::string> text;
  bool from_environment = false;
};

class Interpolator {
 public:
  Interpolator(Node& root, std::string_view origin) : root_(root), origin_(origin) {}

  Status resolve(Node& node) {
    for (Node::Entry& entry : node.entries) TUFT_TRY(resolve(entry.value));
    for (Node& item : node.items) TUFT_TRY(resolve(item));
    if (!node.is_scalar() || node.text.find(kOpen) == std::string::npos || done_.contains(&node)) return {};
    if (std::find(open_.begin(), open_.end(), &node) != open_.end()) {
      return fail(node, "this value refers to itself through ${...}");
    }
    if (open_.size() >= kReferenceDepthMax) return fail(node, kTooDeep);
    open_.push_back(&node);
    TUFT_ASSIGN(Expansion whole, expand(node, node.text));
    open_.pop_back();
    done_.insert(&node);
    node.from_environment |= whole.from_environment;
    if (!whole.text) {
      node.kind = Node::Kind::kNull;
      node.text.clear();
    } else {
      node.text = std::move(*whole.text);
    }
    text_bytes_ += node.text.size();
    if (text_bytes_ > kAllTextBytesMax) return fail(node, "with all ${...} filled in the document is too long");
    return {};
  }

 private:
  Error fail(const Node& node, std::string_view what) const {
    return invalid_argument(std::string(origin_) + ":" + std::to_string(node.line) + ": " + std::string(what),
                            "config");
  }

  Result<Expansion> expand(const Node& node, std::string_view text) {
    if (depth_ >= 2 * kReferenceDepthMax) return fail(node, kTooDeep);
    ++depth_;
    Result<Expansion> result = expand_once(node, text);
    --depth_;
    return result;
  }

  Result<Expansion> expand_once(const Node& node, std::string_view text) {
    Expansion result{.text = std::string()};
    const std::string_view whole = text;
    while (!text.empty()) {
      if (text.starts_with("\\${")) {
        result.text->append(kOpen);
        text.remove_prefix(3);
        continue;
      }
      if (!text.starts_with(kOpen)) {
        result.text->push_back(text.front());
        text.remove_prefix(1);
        continue;
      }
      const size_t close = matching_brace(text);
      if (close == std::string_view::npos) return fail(node, "a ${ is not closed by }; write \\${ for the text itself");
      const std::string_view expression = text.substr(kOpen.size(), close - kOpen.size());
      const bool alone = text.size() == whole.size() && close + 1 == text.size();
      TUFT_ASSIGN(Expansion part, evaluate(node, expression));
      result.from_environment |= part.from_environment;
      if (alone) return part;
      result.text->append(part.text.value_or("null"));
      if (result.text->size() > kFilledBytesMax) return fail(node, "with its ${...} filled in this value is too long");
      text.remove_prefix(close + 1);
    }
    return result;
  }

  static size_t matching_brace(std::string_view text) {
    int depth = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i).starts_with(kOpen)) ++depth;
      if (text[i] == '}' && --depth == 0) return i;
    }
    return std::string_view::npos;
  }

  Result<Expansion> evaluate(const Node& node, std::string_view expression) {
    expression = trim(expression);
    if (expression.starts_with(kEnvironment)) return environment(node, expression.substr(kEnvironment.size()));
    TUFT_ASSIGN(const Expansion inner, expand(node, expression));
    const std::string path = inner.text.value_or("");
    if (path.find(':') != std::string::npos) {
      return fail(node, "the one resolver is ${oc.env:NAME,default}; this value names another");
    }
    return lookup(node, path);
  }

  Result<Expansion> environment(const Node& node, std::string_view arguments) {
    const size_t comma = arguments.find(',');
    const std::string name(trim(arguments.substr(0, comma)));
    if (name.empty()) return fail(node, "${oc.env:...} needs the name of an environment variable");
    if (const char* value = std::getenv(name.c_str())) return Expansion{.text = value, .from_environment = true};
    if (comma == std::string_view::npos) {
      return fail(node,
                  "the environment variable " + name + " is not set; set it or write ${oc.env:" + name + ",default}");
    }
    const std::string_view fallback = trim(arguments.substr(comma + 1));
    if (fallback == "null") return Expansion{};
    if (fallback.find(kOpen) != std::string_view::npos) return expand(node, fallback);
    return Expansion{.text = std::string(unquote(fallback))};
  }

  Result<Expansion> lookup(const Node& node, std::string path) {
    if (path.starts_with('.')) return fail(node, "relative references are not supported; write the path from the root");
    std::replace(path.begin(), path.end(), '[', '.');
    std::erase(path, ']');
    Node* target = &root_;
    std::string_view rest = path;
    while (target != nullptr && !rest.empty()) {
      const size_t dot = rest.find('.');
      target = step(*target, rest.substr(0, dot));
      rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    }
    if (target == nullptr || target == &root_) return fail(node, "${...} refers to a key that is not in this file");
    TUFT_TRY(resolve_scalar(node, *target));
    if (target->is_null()) return Expansion{};
    return Expansion{.text = target->text, .from_environment = target->from_environment};
  }

  Status resolve_scalar(const Node& node, Node& target) {
    if (target.is_map() || target.is_list()) return fail(node, "${...} must refer to a single value, not to a block");
    return resolve(target);
  }

  static Node* step(Node& node, std::string_view name) {
    if (node.is_map()) return node.find(name);
    if (!node.is_list() || name.empty() || name.size() > 6 ||
        !std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      return nullptr;
    }
    const size_t index = std::stoul(std::string(name));
    return index < node.items.size() ? &node.items[index] : nullptr;
  }

  static constexpr std::string_view kTooDeep = "${...} refers to others, and these to others, too many times";

  Node& root_;
  std::string_view origin_;
  size_t depth_ = 0;
  size_t text_bytes_ = 0;          // of the resolved values
  std::vector<const Node*> open_;  // being resolved, outermost first
  std::set<const Node*> done_;     // resolved; their text may contain a literal ${
};

}  // namespace

Status interpolate(Node& root, std::string_view origin) {
  return Interpolator(root, origin).resolve(root);
}

}  // namespace tuft::config
