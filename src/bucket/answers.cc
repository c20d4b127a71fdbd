#include "bucket/answers.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <exception>
#include <optional>
#include <sstream>

#include <boost/property_tree/xml_parser.hpp>

namespace tuft::bucket {
namespace {

namespace pt = boost::property_tree;

constexpr int kDepthMax = 16;
constexpr size_t kCodeLengthMax = 64;

Error unreadable() {
  return internal_error("the answer of the bucket is not that of an S3 server", "bucket_refused");
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_of_name(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 || c == '_' || c == '-' || c == ':' || c == '.';
}

// Reads the tags of XML from the front. It refuses much that the parser takes, so that of all that is left both see the
// same tags.
class TagReader {
 public:
  enum class Tag : uint8_t { kBegin, kEnd, kEmpty, kEndOfText, kRefused };

  explicit TagReader(std::string_view xml) : xml_(xml) {
    if (next_is_at("<?")) at_ = std::min(xml.find("?>", at_), xml.size());
  }

  Tag next() {
    if (!next_is_at("<")) return Tag::kEndOfText;
    ++at_;
    const bool is_end = take('/');
    // Neither comments, CDATA nor a doctype: no S3 server sends them.
    if (!take_name()) return Tag::kRefused;
    skip_space();
    if (is_end) return take('>') ? Tag::kEnd : Tag::kRefused;
    while (!take('>')) {
      if (take('/')) return take('>') ? Tag::kEmpty : Tag::kRefused;
      if (!take_attribute()) return Tag::kRefused;
      skip_space();
    }
    return Tag::kBegin;
  }

 private:
  // Goes to the next tag, and returns whether it begins so.
  bool next_is_at(std::string_view begin) {
    at_ = std::min(xml_.find('<', at_), xml_.size());
    return xml_.substr(at_).starts_with(begin);
  }
  bool take(char c) {
    if (at_ == xml_.size() || xml_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < xml_.size() && is_space(xml_[at_])) ++at_;
  }
  bool take_name() {
    const size_t begin = at_;
    while (at_ < xml_.size() && is_of_name(xml_[at_])) ++at_;
    return at_ > begin;
  }
  bool take_attribute() {
    if (!take_name()) return false;
    skip_space();
    if (!take('=')) return false;
    skip_space();
    const char quote = take('"') ? '"' : '\'';
    if (quote == '\'' && !take('\'')) return false;
    while (at_ < xml_.size() && xml_[at_] != quote && xml_[at_] != '<') ++at_;
    return take(quote);
  }

  const std::string_view xml_;
  size_t at_ = 0;
};

// The parser calls itself for each level, so the depth must be limited before, and nothing may hide a level.
bool is_shallow(std::string_view xml) {
  TagReader reader(xml);
  int depth = 0;
  while (true) {
    const TagReader::Tag tag = reader.next();
    if (tag == TagReader::Tag::kEndOfText) return true;
    if (tag == TagReader::Tag::kRefused) return false;
    if (tag == TagReader::Tag::kBegin) ++depth;
    if (tag == TagReader::Tag::kEnd) --depth;
    if (depth < 0 || depth > kDepthMax) return false;
  }
}

std::optional<pt::ptree> parse(std::string_view xml, const char* root) {
  if (!is_shallow(xml)) return std::nullopt;
  try {
    std::istringstream stream{std::string(xml)};
    pt::ptree tree;
    pt::read_xml(stream, tree);
    if (const auto found = tree.get_child_optional(root)) return *found;
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

// Answers are asked for with encoding-type=url, because XML cannot hold all characters of a key.
std::string url_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

std::string text_of(const pt::ptree& tree, const char* name) {
  return tree.get<std::string>(name, "");
}

// A server that does not know encoding-type does not name it in its answer.
std::string key_of(const pt::ptree& root, const pt::ptree& entry) {
  const std::string key = text_of(entry, "Key");
  return text_of(root, "EncodingType") == "url" ? url_decoded(key) : key;
}

}  // namespace

std::string error_code_of(std::string_view xml) {
  const auto error = parse(xml, "Error");
  if (!error) return {};
  std::string code = text_of(*error, "Code").substr(0, kCodeLengthMax);
  std::erase_if(code, [](unsigned char c) { return std::isalnum(c) == 0; });
  return code;
}

Result<ListPage> parse_list(std::string_view xml) {
  const auto root = parse(xml, "ListBucketResult");
  if (!root) return unreadable();
  ListPage page;
  for (const auto& [name, entry] : *root) {
    if (name != "Contents") continue;
    const auto size = entry.get_optional<int64_t>("Size");
    if (!size || *size < 0) return unreadable();
    page.objects.push_back({key_of(*root, entry), *size});
  }
  if (text_of(*root, "IsTruncated") != "true") return page;
  page.next = text_of(*root, "NextContinuationToken");
  if (page.next.empty()) return unreadable();
  return page;
}

Result<UploadsPage> parse_uploads(std::string_view xml) {
  const auto root = parse(xml, "ListMultipartUploadsResult");
  if (!root) return unreadable();
  UploadsPage page;
  for (const auto& [name, entry] : *root) {
    if (name == "Upload") page.uploads.emplace_back(key_of(*root, entry), text_of(entry, "UploadId"));
  }
  if (text_of(*root, "IsTruncated") != "true") return page;
  const std::string next = text_of(*root, "NextKeyMarker");
  page.next_key = text_of(*root, "EncodingType") == "url" ? url_decoded(next) : next;
  page.next_id = text_of(*root, "NextUploadIdMarker");
  return page;
}

Result<std::string> parse_upload_id(std::string_view xml) {
  const auto root = parse(xml, "InitiateMultipartUploadResult");
  std::string id = root ? text_of(*root, "UploadId") : std::string();
  if (id.empty()) return unreadable();
  return id;
}

}  // namespace tuft::bucket
