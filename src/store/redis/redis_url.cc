#include "store/redis/redis_url.h"

#include <charconv>
#include <optional>

namespace tuft::store {
namespace {

Error wrong(std::string_view what) {
  return invalid_argument("redis_url " + std::string(what) +
                              "; it must be redis://[user:password@]host[:port][/database] or "
                              "unix://[user:password@]/path[?db=0]",
                          "redis_url");
}

std::optional<int> number(std::string_view text, int at_most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > at_most) return std::nullopt;
  return value;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
    out.push_back(static_cast<char>(value));
    i += 2;
  }
  return out;
}

// Removes "user:password@" from the front of `rest`.
Status take_login(std::string_view& rest, RedisUrl& url) {
  const size_t at = rest.substr(0, rest.find_first_of("/?")).rfind('@');
  if (at == std::string_view::npos) return {};
  const std::string_view login = rest.substr(0, at);
  const size_t colon = login.find(':');
  const auto user = percent_decoded(login.substr(0, colon));
  const auto password = percent_decoded(colon == std::string_view::npos ? "" : login.substr(colon + 1));
  if (!user || !password) return wrong("has an invalid % escape before the @");
  if (!user->empty() && password->empty()) return wrong("names a user without a password");
  url.user = *user;
  url.password = *password;
  rest.remove_prefix(at + 1);
  return {};
}

// Removes "?db=3" from the end.
Status take_query(std::string_view& rest, RedisUrl& url) {
  const size_t mark = rest.find('?');
  if (mark == std::string_view::npos) return {};
  const std::string_view query = rest.substr(mark + 1);
  if (!query.starts_with("db=")) return wrong("has a parameter other than db");
  const auto database = number(query.substr(3), 1 << 20);
  if (!database) return wrong("has a db that is not a number");
  url.database = *database;
  rest = rest.substr(0, mark);
  return {};
}

Status take_host(std::string_view rest, RedisUrl& url) {
  if (rest.starts_with("[")) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return wrong("has a [ without its ]");
    url.host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  } else {
    const size_t end = rest.find(':');
    if (end != 0 && !rest.empty()) url.host = rest.substr(0, end);
    rest = end == std::string_view::npos ? "" : rest.substr(end);
  }
  if (rest.empty()) return {};
  const auto port = rest.front() == ':' ? number(rest.substr(1), 65'535) : std::nullopt;
  if (!port || *port == 0) return wrong("has an invalid port");
  url.port = *port;
  return {};
}

}  // namespace

std::string RedisUrl::name() const {
  const std::string address = socket.empty() ? host + ":" + std::to_string(port) : socket;
  return "Redis at " + address + ", database " + std::to_string(database);
}

Result<RedisUrl> parse_redis_url(std::string_view text) {
  constexpr std::string_view kTcp = "redis://";
  constexpr std::string_view kUnix = "unix://";
  if (text.starts_with("rediss://")) {
    return wrong("asks for TLS (rediss), which is not supported; put a TLS proxy such as stunnel in front of Redis");
  }
  const bool is_unix = text.starts_with(kUnix);
  if (!is_unix && !text.starts_with(kTcp)) return wrong("has an unknown scheme");
  std::string_view rest = text.substr(is_unix ? kUnix.size() : kTcp.size());
  RedisUrl url;
  TUFT_TRY(take_login(rest, url));
  TUFT_TRY(take_query(rest, url));
  if (is_unix) {
    if (!rest.starts_with('/')) return wrong("has no absolute path of a socket");
    url.socket = rest;
    return url;
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    if (!database.empty()) {
      const auto value = number(database, 1 << 20);
      if (!value) return wrong("has a database that is not a number");
      url.database = *value;
    }
    rest = rest.substr(0, slash);
  }
  TUFT_TRY(take_host(rest, url));
  return url;
}

}  // namespace tuft::store
