#include "bucket/answers.h"

#include <algorithm>
#include <cctype>
#include <charconv>
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

// The parser calls itself for each level, so the depth must be limited before.
bool is_shallow(std::string_view xml) {
  int depth = 0;
  for (size_t at = xml.find('<'); at != xml.npos && at + 1 < xml.size(); at = xml.find('<', at + 1)) {
    const char next = xml[at + 1];
    if (next == '/') {
      --depth;
    } else if (next != '?' && next != '!') {
      const size_t end = xml.find('>', at);
      if (end != xml.npos && xml[end - 1] != '/') ++depth;
    }
    if (depth > kDepthMax) return false;
  }
  return true;
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
