#include "api/routing/own_url.h"

#include <algorithm>

namespace tuft::api {
namespace {

constexpr size_t kHostBytesMax = 255;

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  });
}

bool is_ipv6(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9') || c == ':' || c == '.';
  });
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Accepts "name", "1.2.3.4" or "[::1]", with or without ":port".
bool is_host(std::string_view text) {
  if (text.size() > kHostBytesMax) return false;
  const bool in_brackets = text.starts_with('[');
  const size_t end = in_brackets ? text.find(']') : text.find(':');
  const std::string_view host = text.substr(in_brackets ? 1 : 0, end - (in_brackets ? 1 : 0));
  if (in_brackets ? end == std::string_view::npos || !is_ipv6(host) : !is_name(host)) return false;
  const std::string_view rest = end == std::string_view::npos ? std::string_view() : text.substr(end + in_brackets);
  return rest.empty() || (rest.front() == ':' && is_port(rest.substr(1)));
}

}  // namespace

std::string own_url(const Exchange& exchange, std::string_view path) {
  if (!exchange.public_url.empty()) return std::string(exchange.public_url).append(path);
  const RequestHeaders& headers = exchange.headers;
  std::string_view host = is_host(headers.forwarded_host) ? headers.forwarded_host : headers.host;
  if (!is_host(host)) host = "localhost";
  const bool proxy_says = headers.forwarded_proto == "https" || headers.forwarded_proto == "http";
  const std::string_view scheme = proxy_says ? headers.forwarded_proto : exchange.scheme;
  return std::string(scheme) + "://" + std::string(host) + std::string(path);
}

}  // namespace tuft::api
