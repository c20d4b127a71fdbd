#include "telemetry/settings/environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/text.h"
#include "telemetry/log.h"

namespace tuft::telemetry::internal {
namespace {

thread_local bool t_ignored = false;

}  // namespace

EnvironmentIgnored::EnvironmentIgnored(bool ignored) {
  t_ignored = ignored;
}

EnvironmentIgnored::~EnvironmentIgnored() {
  t_ignored = false;
}

std::string environment(const std::string& name) {
  if (t_ignored && name != "TUFT_OTEL_DEBUG") return {};
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::string() : std::string(trimmed(value));
}

Setting first_set(std::initializer_list<std::string> names) {
  for (const std::string& name : names) {
    if (std::string value = environment(name); !value.empty()) return {name, std::move(value)};
  }
  return {};
}

bool is_true(std::string_view text) {
  const std::string lower = lower_case(text);
  return lower == "true" || lower == "1";
}

std::optional<int64_t> parse_whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::map<std::string, std::string> parse_pairs(std::string_view list, int& malformed) {
  std::map<std::string, std::string> pairs;
  while (!list.empty()) {
    const std::string_view pair = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), pair.size() + 1));
    if (trimmed(pair).empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = trimmed(pair.substr(0, std::min(equals, pair.size())));
    if (equals == std::string_view::npos || key.empty()) {
      ++malformed;
    } else {
      pairs[std::string(key)] = percent_decoded(trimmed(pair.substr(equals + 1)));
    }
  }
  return pairs;
}

void warn_ignored(std::string_view variable, std::string_view rule) {
  log_warning("telemetry.variable_ignored", std::string(variable) + " " + std::string(rule), {{"variable", variable}});
}

}  // namespace tuft::telemetry::internal
