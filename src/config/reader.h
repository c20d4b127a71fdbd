// Reads typed values from a mapping. The keys that are read are the known ones; finish() reports any other key, with a
// suggestion. All problems of a file are collected, so that one start shows all of them.
//
// No message shows a value from the environment or a word that looks like an API key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/document.h"

namespace tuft::config {

class Problems {
 public:
  explicit Problems(std::string_view origin) : origin_(origin) {}

  void error(int line, std::string_view path, std::string_view text);
  void warning(int line, std::string_view path, std::string_view text);
  // Adds the warning only once for all paths that end in `key`.
  void warning_once(int line, std::string_view path, std::string_view key, std::string_view text);
  // Replaces `secret` by *** in all messages, including earlier ones.
  void hide(std::string secret);

  bool failed() const { return !errors_.empty(); }
  Error take_error() const;  // all errors, one per line
  std::vector<std::string> take_warnings() const;

 private:
  std::string format(int line, std::string_view path, std::string_view text) const;
  std::string scrub(std::string message) const;

  std::string origin_;
  std::vector<std::string> errors_, warnings_;
  std::set<std::string, std::less<>> warned_;
  std::vector<std::string> secrets_;
};

class MapReader {
 public:
  // If `node` is nullptr or a null node, every key is absent. A node that is not a map is an error.
  MapReader(const Node* node, std::string path, Problems& problems);

  // Marks the key as known and returns its value, or nullptr if it is absent or null, which both mean the default.
  const Node* take(std::string_view key);

  // Each of these sets `out` and returns true, or leaves `out` unchanged if the key is absent or wrong. A wrong value
  // is reported.
  bool text(std::string_view key, std::string& out);
  // An empty path counts as absent; of another one, `out` becomes the full path.
  bool file(std::string_view key, std::filesystem::path& out);
  bool boolean(std::string_view key, bool& out);
  bool number(std::string_view key, double& out);
  template <typename T>
  bool integer(std::string_view key, T& out, int64_t at_least = std::numeric_limits<T>::min(),
               int64_t at_most = std::numeric_limits<T>::max()) {
    const std::optional<int64_t> value = whole_number(key, at_least, at_most);
    if (value) out = static_cast<T>(*value);
    return value.has_value();
  }
  // Returns the index of the value in `words`.
  std::optional<size_t> one_of(std::string_view key, const std::vector<std::string_view>& words);

  void require(std::string_view key, std::string_view what);  // reports the key if it is absent
  void finish();                                              // reports every unknown key

  Problems& problems() const { return problems_; }
  std::string path_of(std::string_view key) const;
  int line() const { return line_; }
  int line_of(std::string_view key) const;
  void error(std::string_view key, std::string_view text) { problems_.error(line_of(key), path_of(key), text); }
  void warning(std::string_view key, std::string_view text) { problems_.warning(line_of(key), path_of(key), text); }

 private:
  const Node* take_scalar(std::string_view key, std::string_view expected);
  std::optional<int64_t> whole_number(std::string_view key, int64_t at_least, int64_t at_most);

  const Node* node_ = nullptr;
  std::string path_;
  Problems& problems_;
  int line_ = 1;
  std::vector<std::string_view> known_;
};

// Completes a relative path with the working directory, and a leading ~ with the home directory.
std::filesystem::path full_path(std::string_view text);

// Parse scalars as TuFT does: "8" and 8.0 are whole numbers; yes, no, on and off are booleans.
std::optional<int64_t> parse_whole_number(std::string_view text);
std::optional<double> parse_number(std::string_view text);
std::optional<bool> parse_boolean(std::string_view text);

}  // namespace tuft::config
