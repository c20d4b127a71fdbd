#include "api/routing/own_url.h"

#include <algorithm>

namespace tuft::api {
namespace {

constexpr size_t kHostBytesMax = 255;

bool is_host(std::string_view text) {
  return !text.empty() && text.size() <= kHostBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == ':' || c == '[' || c == ']';
  });
}

}  // namespace

std::string own_url(const Exchange& exchange, std::string_view path) {
  const RequestHeaders& headers = exchange.headers;
  std::string_view host = is_host(headers.forwarded_host) ? headers.forwarded_host : headers.host;
  if (!is_host(host)) host = "localhost";
  const bool proxy_says = headers.forwarded_proto == "https" || headers.forwarded_proto == "http";
  const std::string_view scheme = proxy_says ? headers.forwarded_proto : exchange.scheme;
  return std::string(scheme) + "://" + std::string(host) + std::string(path);
}

}  // namespace tuft::api
