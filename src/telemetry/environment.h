// Reading of environment variables as OpenTelemetry defines it: an empty one counts as absent, lists are
// percent-decoded. Internal to telemetry.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tuft::telemetry::internal {

// A variable, or where its name stands for a key of the configuration, that.
struct Setting {
  std::string name;
  std::string value = {};

  explicit operator bool() const { return !value.empty(); }
};

// Without blanks around it.
std::string environment(const std::string& name);
// The first of these that is set; an empty one where none is.
Setting first_set(std::initializer_list<std::string> names);
// "true" (or "1"); anything else is false.
bool is_true(std::string_view text);

std::optional<int64_t> parse_whole(std::string_view text);
std::string lower_case(std::string_view text);
std::string percent_decoded(std::string_view text);

// "key=value,key=value". Pairs without a key or an equals sign are left out; their number goes into `malformed`.
std::map<std::string, std::string> parse_pairs(std::string_view list, int& malformed);

// One warning for a variable that is left out of account. Never shows its value.
void warn_ignored(std::string_view variable, std::string_view rule);

}  // namespace tuft::telemetry::internal
