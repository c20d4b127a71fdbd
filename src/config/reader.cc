#include "config/reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "config/nearest.h"

namespace tuft::config {
namespace {

constexpr size_t kErrorsMax = 20;

// Returns true if a key may be shown. Other texts may be secrets at the wrong level of the file.
bool looks_like_a_setting(std::string_view key) {
  return !key.empty() && key.size() <= 48 &&
         std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::islower(c) || c == '_'; });
}

std::string shown(const Node& node) {
  if (node.from_environment) return "what the environment variable holds";
  if (node.text.size() > 40) return "this text of " + std::to_string(node.text.size()) + " characters";
  return "'" + node.text + "'";
}

// Masks words that look like API keys.
std::string mask_keys(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (!rest.starts_with("tml-") && !rest.starts_with("eyJ")) {
      out.push_back(text[i++]);
      continue;
    }
    const size_t start = i;
    while (i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '-' || text[i] == '_' || text[i] == '.'))
      ++i;
    // "tml-" without more is a part of a rule's text.
    out += i - start > 4 ? "***" : text.substr(start, i - start);
  }
  return out;
}

}  // namespace

void Problems::error(int line, std::string_view path, std::string_view text) {
  if (errors_.size() < kErrorsMax) errors_.push_back(format(line, path, text));
}

void Problems::warning(int line, std::string_view path, std::string_view text) {
  warnings_.push_back(format(line, path, text));
}

void Problems::warning_once(int line, std::string_view path, std::string_view key, std::string_view text) {
  if (warned_.emplace(key).second) warning(line, path, text);
}

void Problems::hide(std::string secret) {
  if (secret.size() >= 3) secrets_.push_back(std::move(secret));
}

std::string Problems::format(int line, std::string_view path, std::string_view text) const {
  std::string message = origin_ + ":" + std::to_string(line) + ": ";
  if (!path.empty()) message.append(path).append(": ");
  return message.append(text);
}

std::string Problems::scrub(std::string message) const {
  for (const std::string& secret : secrets_) {
    for (size_t at = origin_.size(); (at = message.find(secret, at)) != std::string::npos;) {
      message.replace(at, secret.size(), "***");
      at += 3;
    }
  }
  return message.substr(0, origin_.size()) + mask_keys(message.substr(origin_.size()));
}

Error Problems::take_error() const {
  std::string all;
  for (const std::string& error : errors_) all += (all.empty() ? "" : "\n") + scrub(error);
  return invalid_argument(std::move(all), "config");
}

std::vector<std::string> Problems::take_warnings() const {
  std::vector<std::string> scrubbed;
  for (const std::string& warning : warnings_) scrubbed.push_back(scrub(warning));
  return scrubbed;
}

MapReader::MapReader(const Node* node, std::string path, Problems& problems)
    : path_(std::move(path)), problems_(problems) {
  if (node == nullptr || node->is_null()) return;
  line_ = node->line;
  if (node->is_map()) {
    node_ = node;
  } else {
    problems_.error(node->line, path_, "must be a mapping (key: value lines)");
  }
}

const Node* MapReader::take(std::string_view key) {
  known_.push_back(key);
  const Node* node = node_ == nullptr ? nullptr : node_->find(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

const Node* MapReader::take_scalar(std::string_view key, std::string_view expected) {
  const Node* node = take(key);
  if (node == nullptr || node->is_scalar()) return node;
  error(key, "must be " + std::string(expected) + ", not a " + (node->is_map() ? "mapping" : "list"));
  return nullptr;
}

bool MapReader::text(std::string_view key, std::string& out) {
  const Node* node = take_scalar(key, "a text");
  if (node == nullptr) return false;
  out = node->text;
  return true;
}

bool MapReader::file(std::string_view key, std::filesystem::path& out) {
  std::string named;
  if (!text(key, named) || named.empty()) return false;
  out = full_path(named);
  return true;
}

bool MapReader::boolean(std::string_view key, bool& out) {
  const Node* node = take_scalar(key, "true or false");
  if (node == nullptr) return false;
  const std::optional<bool> value = parse_boolean(node->text);
  if (!value) error(key, "must be true or false, not " + shown(*node));
  out = value.value_or(out);
  return value.has_value();
}

bool MapReader::number(std::string_view key, double& out) {
  const Node* node = take_scalar(key, "a number");
  if (node == nullptr) return false;
  const std::optional<double> value = parse_number(node->text);
  if (!value) error(key, "must be a number, not " + shown(*node));
  out = value.value_or(out);
  return value.has_value();
}

std::optional<int64_t> MapReader::whole_number(std::string_view key, int64_t at_least, int64_t at_most) {
  const Node* node = take_scalar(key, "a whole number");
  if (node == nullptr) return std::nullopt;
  const std::optional<int64_t> value = parse_whole_number(node->text);
  if (!value) {
    error(key, "must be a whole number, not " + shown(*node));
  } else if (*value < at_least) {
    error(key, "must be at least " + std::to_string(at_least) + ", not " + shown(*node));
  } else if (*value > at_most) {
    error(key, "must be at most " + std::to_string(at_most) + ", not " + shown(*node));
  } else {
    return value;
  }
  return std::nullopt;
}

std::optional<size_t> MapReader::one_of(std::string_view key, const std::vector<std::string_view>& words) {
  const Node* node = take_scalar(key, "a word");
  if (node == nullptr) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), node->text);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  std::string list;
  for (const std::string_view word : words) list.append(list.empty() ? "" : ", ").append(word);
  error(key, "must be one of " + list + ", not " + shown(*node));
  return std::nullopt;
}

void MapReader::require(std::string_view key, std::string_view what) {
  const Node* node = node_ == nullptr ? nullptr : node_->find(key);
  if (node == nullptr || node->is_null())
    problems_.error(line_of(key), path_of(key), "is missing: " + std::string(what));
}

void MapReader::finish() {
  if (node_ == nullptr) return;
  for (const Node::Entry& entry : node_->entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    const std::string_view nearest = nearest_word(entry.key, known_);
    const bool show = !nearest.empty() || looks_like_a_setting(entry.key);
    const std::string where = path_.empty() ? "at the top level" : "in " + path_;
    std::string text = "unknown key " + (show ? "'" + entry.key + "' " : "(not shown, it may be a secret) ") + where;
    text +=
        nearest.empty() ? "; docs/configuration.md lists the keys" : "; did you mean '" + std::string(nearest) + "'?";
    problems_.error(entry.line, "", text);
  }
}

std::string MapReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

int MapReader::line_of(std::string_view key) const {
  if (node_ != nullptr) {
    for (const Node::Entry& entry : node_->entries) {
      if (entry.key == key) return entry.line;
    }
  }
  return line_;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::filesystem::path full_path(std::string_view text) {
  std::error_code ignored;
  return std::filesystem::absolute(expand_user(text), ignored).lexically_normal();
}

std::optional<int64_t> parse_whole_number(std::string_view text) {
  std::string digits(text.starts_with('+') ? text.substr(1) : text);
  // YAML 1.1 allows 1_000_000.
  if (!digits.empty() && digits.front() != '_' && digits.back() != '_') std::erase(digits, '_');
  int64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status == std::errc() && end == digits.data() + digits.size() && !digits.empty()) return value;
  const std::optional<double> real = parse_number(digits);
  if (!real || *real != std::floor(*real) || std::abs(*real) > 9e15) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::optional<bool> parse_boolean(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

}  // namespace tuft::config
