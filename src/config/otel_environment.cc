#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include "config/otel_file.h"

namespace tuft::config {
namespace {

constexpr size_t kEnvironmentBytesMax = 4 << 20;

bool is_name(std::string_view text) {
  const auto inside = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(), inside);
}

class Substitution {
 public:
  explicit Substitution(std::string_view origin) : origin_(origin) {}

  Status apply(Node& node) {
    for (Node::Entry& entry : node.entries) TUFT_TRY(apply(entry.value));
    for (Node& item : node.items) TUFT_TRY(apply(item));
    if (!node.is_scalar() || node.text.find('$') == std::string::npos) return {};
    TUFT_ASSIGN(node.text, resolve(node));
    text_bytes_ += node.text.size();
    if (text_bytes_ > kEnvironmentBytesMax) return fail(node, "with all ${...} filled in the document is too long");
    // The type of a value is that of the text after the substitution; an empty one is null.
    if (!node.quoted && is_null_word(node.text)) node.kind = Node::Kind::kNull;
    return {};
  }

 private:
  Error fail(const Node& node, std::string_view what) const {
    return invalid_argument(std::string(origin_) + ":" + std::to_string(node.line) + ": " + std::string(what),
                            "config");
  }

  // $$ ends a part; no reference reaches over it.
  Result<std::string> resolve(Node& node) {
    std::string out;
    std::string_view rest = node.text;
    for (;;) {
      const size_t escape = rest.find("$$");
      TUFT_TRY(resolve_part(node, rest.substr(0, escape), out));
      if (escape == std::string_view::npos) return out;
      out += '$';
      rest.remove_prefix(escape + 2);
    }
  }

  Status resolve_part(Node& node, std::string_view part, std::string& out) {
    for (;;) {
      const size_t open = part.find("${");
      const size_t close = open == std::string_view::npos ? open : part.find('}', open);
      // Without its end, or without a content, this is no reference.
      if (close == std::string_view::npos || close == open + 2) {
        out += part;
        return {};
      }
      out += part.substr(0, open);
      TUFT_TRY(resolve_reference(node, part.substr(open + 2, close - open - 2), out));
      part.remove_prefix(close + 1);
    }
  }

  Status resolve_reference(Node& node, std::string_view reference, std::string& out) {
    constexpr std::string_view kScheme = "env:";
    constexpr std::string_view kDefault = ":-";
    if (reference.starts_with(kScheme)) reference.remove_prefix(kScheme.size());
    const size_t mark = reference.find(kDefault);
    const std::string name(reference.substr(0, mark));
    const std::string_view fallback =
        mark == std::string_view::npos ? std::string_view() : reference.substr(mark + kDefault.size());
    if (!is_name(name) || fallback.find('\n') != std::string_view::npos)
      return fail(node, "a ${...} must be ${NAME}, ${env:NAME} or ${NAME:-default}; write $${ for the text itself");
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') {
      out += fallback;
    } else {
      out += value;
      node.from_environment = true;
    }
    return {};
  }

  const std::string_view origin_;
  size_t text_bytes_ = 0;
};

}  // namespace

Status substitute_environment(Node& root, std::string_view origin) {
  return Substitution(origin).apply(root);
}

}  // namespace tuft::config
