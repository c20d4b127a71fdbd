// Which server the commands ask, and with which key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tuft::terminal {

struct Address {
  bool tls = false;
  std::string host;  // an IPv6 address is without brackets
  uint16_t port = 0;
  std::string prefix;             // of all paths: "" or "/tuft", behind a proxy
  std::string authority() const;  // "127.0.0.1:10610"
  std::string text() const;       // "http://127.0.0.1:10610/tuft"
};

// Reads "http://host:port/prefix", "https://host" or "host:port".
Result<Address> parse_address(std::string_view url);

// Returns the address of `url` if it is set, else of $TUFT_URL, else of the server that runs with the home directory
// `home` (its address file), else of the default port on this machine.
Result<Address> find_server(const std::string& url, const std::filesystem::path& home);

// Returns $TUFT_API_KEY, else $TINKER_API_KEY. Says where to put the key if there is none.
Result<std::string> find_key();

// Makes the query of a request. Values are percent-encoded; empty ones are left out.
class Query {
 public:
  void add(std::string_view key, std::string_view value);
  // Returns the path with the query, if there is one.
  std::string target(std::string_view path) const;

 private:
  std::string text_;
};
std::string percent_encoded(std::string_view text);

}  // namespace tuft::terminal
