// Reads environment variables as OpenTelemetry defines it: an empty one counts as absent; lists are percent-decoded.
// Internal to telemetry.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tuft::telemetry::internal {

// A variable or a configuration key with its value.
struct Setting {
  std::string name;
  std::string value = {};

  explicit operator bool() const { return !value.empty(); }
};

// While it lives, environment() and first_set() of this thread find no variable except TUFT_OTEL_DEBUG.
class EnvironmentIgnored {
 public:
  explicit EnvironmentIgnored(bool ignored);
  ~EnvironmentIgnored();
  EnvironmentIgnored(const EnvironmentIgnored&) = delete;
  EnvironmentIgnored& operator=(const EnvironmentIgnored&) = delete;
};

// Returns the value of the variable without surrounding blanks; "" if it is not set.
std::string environment(const std::string& name);
// Returns the first variable that is set; an empty Setting if none is.
Setting first_set(std::initializer_list<std::string> names);
// Returns true if `text` is "true" or "1".
bool is_true(std::string_view text);

std::optional<int64_t> parse_whole(std::string_view text);
std::string lower_case(std::string_view text);
std::string percent_decoded(std::string_view text);

// Parses "key=value,key=value". Leaves out pairs without a key or an equals sign and sets `malformed` to their number.
std::map<std::string, std::string> parse_pairs(std::string_view list, int& malformed);

// Logs a warning that a variable is ignored. Never shows its value.
void warn_ignored(std::string_view variable, std::string_view rule);

}  // namespace tuft::telemetry::internal
