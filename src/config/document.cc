#include "config/document.h"

#include <optional>
#include <sstream>
#include <unordered_map>
#include <vector>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

namespace tuft::config {
namespace {

// Aliases can make a small document large without end: nested ones grow exponentially, one that contains itself has no
// bottom, and each repetition of a text is a copy. A configuration has less than ten levels.
constexpr int kNodesMax = 100'000;
constexpr int kDepthMax = 64;
constexpr size_t kTextBytesMax = 4 << 20;  // four times the largest file

Error at(std::string_view origin, int line, std::string_view what) {
  return invalid_argument(std::string(origin) + ":" + std::to_string(line) + ": " + std::string(what), "config");
}

// Records where documents start and ignores their contents.
class DocumentStarts final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { marks.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  std::vector<YAML::Mark> marks;
};

// For a text that begins with a comma, yaml-cpp 0.7 finds empty documents without end, so at most two are read.
Status check_single_document(const std::string& yaml, std::string_view origin) {
  std::istringstream stream(yaml);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  while (starts.marks.size() < 2 && parser.HandleNextDocument(starts)) continue;
  if (starts.marks.size() < 2) return {};
  const int line = starts.marks[1].line + 1;
  if (starts.marks[0].pos == starts.marks[1].pos) return at(origin, line, "this is not YAML: nothing can start here");
  return at(origin, line, "a second document starts here; a configuration must be one document");
}

class Converter {
 public:
  explicit Converter(std::string_view origin) : origin_(origin) {}

  Result<Node> convert(const YAML::Node& source, int line_if_unknown) {
    if (depth_ >= kDepthMax) {
      return at(origin_, line_if_unknown,
                "the document is nested more than " + std::to_string(kDepthMax) +
                    " levels deep here; does an alias (*name) stand inside of what it names?");
    }
    ++depth_;
    Result<Node> node = convert_one(source, line_if_unknown);
    --depth_;
    return node;
  }

 private:
  Result<Node> convert_one(const YAML::Node& source, int line_if_unknown) {
    TUFT_TRY(count(source.IsScalar() ? source.Scalar().size() : 0, line_if_unknown));
    Node node;
    node.line = source.Mark().line >= 0 ? source.Mark().line + 1 : line_if_unknown;
    switch (source.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return node;
      case YAML::NodeType::Scalar:
        // yaml-cpp gives plain scalars the tag "?" and quoted ones "!".
        node.quoted = source.Tag() != "?" && !source.Tag().empty();
        node.text = source.Scalar();
        node.kind = !node.quoted && is_null_word(node.text) ? Node::Kind::kNull : Node::Kind::kScalar;
        return node;
      case YAML::NodeType::Sequence:
        node.kind = Node::Kind::kList;
        for (const YAML::Node& item : source) {
          TUFT_ASSIGN(Node converted, convert(item, node.line));
          node.items.push_back(std::move(converted));
        }
        return node;
      case YAML::NodeType::Map:
        return convert_map(source, std::move(node));
    }
    return node;
  }

  Status count(size_t text_bytes, int line) {
    text_bytes_ += text_bytes;
    if (++nodes_ <= kNodesMax && text_bytes_ <= kTextBytesMax) return {};
    return at(origin_, line, "the document grows too large when aliases are expanded");
  }

  Result<Node> convert_map(const YAML::Node& source, Node node) {
    node.kind = Node::Kind::kMap;
    std::unordered_map<std::string, int> line_of_key;
    for (const auto& pair : source) {
      const int line = pair.first.Mark().line + 1;
      if (!pair.first.IsScalar()) return at(origin_, line, "a key must be a plain word");
      Node::Entry entry{.key = pair.first.Scalar(), .line = line, .value = {}};
      TUFT_TRY(count(entry.key.size(), line));
      if (const auto [first, is_new] = line_of_key.emplace(entry.key, line); !is_new) {
        return at(origin_, line,
                  "this key stands here twice; the first one is in line " + std::to_string(first->second) +
                      ". Remove one of them");
      }
      TUFT_ASSIGN(entry.value, convert(pair.second, line));
      node.entries.push_back(std::move(entry));
    }
    return node;
  }

  std::string_view origin_;
  int nodes_ = 0;
  int depth_ = 0;
  size_t text_bytes_ = 0;
};

}  // namespace

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

const Node* Node::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).find(key));
}

Result<Node> parse_document(std::string_view yaml, std::string_view origin) {
  try {
    const std::string text(yaml);
    TUFT_TRY(check_single_document(text, origin));
    return Converter(origin).convert(YAML::Load(text), 1);
  } catch (const YAML::Exception& error) {
    return at(origin, error.mark.line + 1, "this is not YAML: " + error.msg);
  } catch (const std::exception& error) {
    return at(origin, 1, std::string("this is not YAML: ") + error.what());
  }
}

}  // namespace tuft::config
