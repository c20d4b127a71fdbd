// Typed reading of a mapping: every key that is asked for is known, every other one is an error with a suggestion.
// All problems of a file are collected, so that one start shows all of them.
//
// No message shows a value that came from the environment, and none shows what looks like an API key.
#pragma once

#include <cstdint>
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
  // The same, but once for all paths that end in `key`.
  void warning_once(int line, std::string_view path, std::string_view key, std::string_view text);
  // From now on, and in what was said already, these words are shown as ***.
  void hide(std::string secret);

  bool failed() const { return !errors_.empty(); }
  Error take_error() const;  // all of them, one a line
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
  // `node` may be null or absent (nullptr): then every key is absent. A node of another kind is an error.
  MapReader(const Node* node, std::string path, Problems& problems);

  // Marks the key as known. nullptr where it is absent or null; both mean "the default".
  const Node* take(std::string_view key);

  // Each leaves `out` alone where the key is absent or wrong; a wrong one is reported. True where `out` was set.
  bool text(std::string_view key, std::string& out);
  bool boolean(std::string_view key, bool& out);
  bool number(std::string_view key, double& out);
  template <typename T>
  bool integer(std::string_view key, T& out, int64_t at_least = std::numeric_limits<T>::min(),
               int64_t at_most = std::numeric_limits<T>::max()) {
    const std::optional<int64_t> value = whole_number(key, at_least, at_most);
    if (value) out = static_cast<T>(*value);
    return value.has_value();
  }
  // The index of the word in `words`.
  std::optional<size_t> one_of(std::string_view key, const std::vector<std::string_view>& words);

  void require(std::string_view key, std::string_view what);  // an error where the key is absent
  void finish();                                              // an error for each key that nobody asked for

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

// Scalars as TuFT reads them: "8" and 8.0 are whole numbers, yes/no/on/off are booleans.
std::optional<int64_t> parse_whole_number(std::string_view text);
std::optional<double> parse_number(std::string_view text);
std::optional<bool> parse_boolean(std::string_view text);

}  // namespace tuft::config
