// The configuration as it is in effect, as YAML that people may see: no API key, password, token or header value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/config.h"

namespace tuft::config {

// Returns a file that parse_config() reads, with "***" for each secret. An API key is "*** <number>"; a header, its
// name only; a URL, without user, password and query. Keys that are absent and have no fixed default are left out.
std::string shown_config(const ServerConfig& config);

// Returns a URL without user, password and query: "redis://***@host:6379/0", "https://host/path?***".
std::string shown_url(std::string_view url);

// The limits, in the order of the documentation, by the keys below `limits`; true and false are 1 and 0.
std::vector<std::pair<std::string_view, int64_t>> limit_values(const Limits& limits);

}  // namespace tuft::config
