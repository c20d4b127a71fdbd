#include "app/tuft/terminal/server.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"

namespace tuft::terminal {
namespace {

constexpr std::string_view kDefaultAddress = "http://127.0.0.1:10610";
constexpr size_t kAddressFileBytesMax = 4096;
constexpr uint16_t kDefaultPort = 10610;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Error wrong_address(std::string_view url) {
  return invalid_argument("'" + std::string(url) +
                          "' is not the address of a server; write, for instance, http://127.0.0.1:10610 or "
                          "https://tuft.example");
}

bool is_unsafe(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '@' || c == '?' || c == '#' || c == '\\';
}

// Splits "host:port", "host", "[::1]:port". Leaves the port as it is if there is none.
bool read_authority(std::string_view text, Address& address) {
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    address.host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') return false;
    port = rest.empty() ? rest : rest.substr(1);
  } else {
    const size_t colon = text.find(':');
    address.host = text.substr(0, colon);
    if (colon != std::string_view::npos) port = text.substr(colon + 1);
  }
  if (address.host.empty()) return false;
  if (port.empty()) return true;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  return error == std::errc() && end == port.data() + port.size() && address.port != 0;
}

}  // namespace

std::string Address::authority() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string Address::text() const {
  return (tls ? "https://" : "http://") + authority() + prefix;
}

Result<Address> parse_address(std::string_view url) {
  std::string_view rest = trimmed(url);
  Address address;
  address.port = kDefaultPort;
  if (std::any_of(rest.begin(), rest.end(), is_unsafe)) return wrong_address(url);
  if (rest.starts_with("https://")) {
    address.tls = true;
    address.port = 443;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    address.port = 80;
    rest.remove_prefix(7);
  } else if (rest.find("://") != std::string_view::npos) {
    return wrong_address(url);
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) address.prefix = rest.substr(slash);
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  if (!read_authority(rest.substr(0, slash), address)) return wrong_address(url);
  return address;
}

Result<Address> find_server(const std::string& url, const std::filesystem::path& home) {
  if (!url.empty()) return parse_address(url);
  if (const std::string variable = environment("TUFT_URL"); !variable.empty()) return parse_address(variable);
  const Result<std::string> file = read_file(home / "tuft_current_server", kAddressFileBytesMax);
  return parse_address(file.ok() && !trimmed(*file).empty() ? std::string_view(*file) : kDefaultAddress);
}

Result<std::string> find_key() {
  for (const char* const name : {"TUFT_API_KEY", "TINKER_API_KEY"}) {
    std::string key = environment(name);
    if (key.empty()) continue;
    const bool is_text = std::all_of(key.begin(), key.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
    if (is_text) return key;
    return Error{ErrorCode::kUnauthenticated, std::string(name) + " has a space or a control character; set it again",
                 "bad_key"};
  }
  return Error{
      ErrorCode::kUnauthenticated,
      "there is no API key: set TUFT_API_KEY (or TINKER_API_KEY) to a key of authorized_users. It is not taken "
      "from the command line, where every user of the machine could read it",
      "no_key"};
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && (std::isalnum(byte) != 0 || c == '-' || c == '.' || c == '_' || c == '~')) {
      out += c;
    } else {
      out += '%';
      append_hex(out, std::string_view(&c, 1));
    }
  }
  return out;
}

void Query::add(std::string_view key, std::string_view value) {
  if (value.empty()) return;
  text_ += text_.empty() ? '?' : '&';
  text_ += key;
  text_ += '=';
  text_ += percent_encoded(value);
}

std::string Query::target(std::string_view path) const {
  return std::string(path) + text_;
}

}  // namespace tuft::terminal
