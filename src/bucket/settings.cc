#include "bucket/settings.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tuft::bucket {
namespace {

using Json = nlohmann::json;

// Lists the fields once for both directions, so that they cannot differ. Calls `visit(key, field)`.
template <typename Config, typename Visit>
void for_each_field(Config& settings, Visit&& visit) {
  visit("endpoint", settings.endpoint);
  visit("region", settings.region);
  visit("name", settings.name);
  visit("prefix", settings.prefix);
  visit("path_style", settings.path_style);
  visit("access_key_id", settings.credentials.access_key_id);
  visit("secret_access_key", settings.credentials.secret_access_key);
  visit("session_token", settings.credentials.session_token);
  visit("authorities", settings.authorities);
  visit("timeout", settings.timeout);
  visit("part_bytes", settings.part_bytes);
  visit("cache_bytes", settings.cache_bytes);
}

bool is_all(std::string_view text, bool (*allowed)(unsigned char)) {
  return std::all_of(text.begin(), text.end(), [allowed](char c) { return allowed(static_cast<unsigned char>(c)); });
}

bool is_printable(unsigned char c) {
  return c > 0x20 && c < 0x7f;
}

bool is_bucket_character(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

bool is_prefix_character(unsigned char c) {
  return is_bucket_character(c) || c == '/';
}

Error wrong(std::string_view field, std::string_view what) {
  return invalid_argument(std::string(field) + " " + std::string(what), "bucket_settings");
}

bool has_empty_or_dot_part(std::string_view prefix) {
  while (!prefix.empty()) {
    const size_t end = std::min(prefix.find('/'), prefix.size());
    const std::string_view part = prefix.substr(0, end);
    if (part.empty() || part == "." || part == "..") return true;
    prefix.remove_prefix(std::min(end + 1, prefix.size()));
  }
  return false;
}

Status check_endpoint(std::string_view endpoint) {
  constexpr std::array<std::string_view, 2> kSchemes = {"https://", "http://"};
  for (const std::string_view scheme : kSchemes) {
    if (!endpoint.starts_with(scheme)) continue;
    const std::string_view host = endpoint.substr(scheme.size());
    const auto is_wrong = [](char c) {
      return !is_printable(static_cast<unsigned char>(c)) || c == '/' || c == '@' || c == '?' || c == '#';
    };
    if (!host.empty() && std::none_of(host.begin(), host.end(), is_wrong)) return {};
  }
  return wrong("endpoint", "must be https://HOST, https://HOST:PORT, or the same with http, without a path or a user");
}

}  // namespace

std::string address_of(const Settings& settings) {
  return "s3://" + settings.name + "/" + settings.prefix;
}

std::string to_json(const Settings& settings) {
  Json json = Json::object();
  for_each_field(settings, [&json](const char* key, const auto& value) { json[key] = value; });
  return json.dump();
}

Result<Settings> settings_from_json(std::string_view json) {
  Settings settings;
  try {
    const Json parsed = Json::parse(json);
    for_each_field(settings, [&parsed](const char* key, auto& value) { parsed.at(key).get_to(value); });
  } catch (const std::exception&) {
    return invalid_argument("the settings of the bucket are not those that a server of this version sends",
                            "bucket_settings");
  }
  TUFT_TRY(check(settings));
  return settings;
}

Status check(const Settings& settings) {
  TUFT_TRY(check_endpoint(settings.endpoint));
  if (settings.region.empty() || !is_all(settings.region, is_bucket_character)) {
    return wrong("region", "must be a word such as eu-central-1; stores other than AWS mostly take us-east-1");
  }
  if (settings.name.size() < 3 || settings.name.size() > 63 || !is_all(settings.name, is_bucket_character)) {
    return wrong("name", "must be the name of a bucket: 3 to 63 letters, digits, dots, underscores and hyphens");
  }
  const std::string& prefix = settings.prefix;
  if (prefix.size() > 256 || !is_all(prefix, is_prefix_character) || has_empty_or_dot_part(prefix) ||
      (!prefix.empty() && prefix.back() != '/')) {
    return wrong("prefix",
                 "must be like \"tuft/\" or \"teams/tuft/\": letters, digits, dots, underscores, hyphens and single "
                 "slashes, at most 256 bytes, with a slash at its end");
  }
  const Credentials& keys = settings.credentials;
  for (const auto& [field, value] :
       {std::pair<std::string_view, const std::string&>("access_key_id", keys.access_key_id),
        {"secret_access_key", keys.secret_access_key}}) {
    if (value.empty() || !is_all(value, is_printable))
      return wrong(field, "is missing or has blanks or control characters");
  }
  if (!is_all(keys.session_token, is_printable)) return wrong("session_token", "has blanks or control characters");
  if (settings.timeout < kSecond) return wrong("timeout", "must be at least a second");
  if (settings.part_bytes < kPartBytesMin) return wrong("part_bytes", "must be at least 5242880");
  if (settings.cache_bytes < 0) return wrong("cache_bytes", "must not be negative");
  return {};
}

Result<Credentials> parse_credentials(std::string_view text) {
  Credentials credentials;
  bool is_default = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      is_default = line == "[default]";
      continue;
    }
    const size_t equals = line.find('=');
    if (!is_default) continue;
    if (equals == line.npos) return wrong("the file", "has a line without \"=\"");
    const std::string_view key = trimmed(line.substr(0, equals));
    const std::string value(trimmed(line.substr(equals + 1)));
    if (key == "aws_access_key_id") credentials.access_key_id = value;
    if (key == "aws_secret_access_key") credentials.secret_access_key = value;
    if (key == "aws_session_token") credentials.session_token = value;
  }
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    return wrong("the file", "has no aws_access_key_id or no aws_secret_access_key in the section [default]");
  }
  return credentials;
}

}  // namespace tuft::bucket
