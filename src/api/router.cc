#include "api/router.h"

#include <utility>

#include "base/check.h"

namespace tuft::api {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kPost:
      return "POST";
    case Method::kOther:
      return "_OTHER";
  }
  return "_OTHER";
}

bool percent_decode(std::string_view segment, std::string& out) {
  out.clear();
  for (size_t i = 0; i < segment.size(); ++i) {
    char c = segment[i];
    if (c == '%') {
      if (i + 2 >= segment.size()) return false;
      const int high = hex_digit(segment[i + 1]);
      const int low = hex_digit(segment[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
    out.push_back(c);
  }
  return true;
}

Router::Router(std::span<const Route> all) {
  routes_.reserve(all.size());
  for (const Route& route : all) {
    const std::string name = std::string(method_name(route.method)) + " " + std::string(route.pattern);
    routes_.push_back({route, telemetry::Name::intern(name), routes_.size()});
  }
  for (const RegisteredRoute& registered : routes_) {
    const std::string_view pattern = registered.route.pattern;
    const size_t open = pattern.find('{');
    if (open == std::string_view::npos) {
      add(literals_[pattern], registered);
      continue;
    }
    const size_t end = pattern.find('}');
    TUFT_CHECK(end != std::string_view::npos && pattern.find('{', end) == std::string_view::npos, "route pattern");
    const std::string_view prefix = pattern.substr(0, open);
    const std::string_view suffix = pattern.substr(end + 1);
    Template* same = nullptr;
    for (Template& candidate : templates_) {
      if (candidate.prefix == prefix && candidate.suffix == suffix) same = &candidate;
    }
    if (same == nullptr) same = &templates_.emplace_back(Template{prefix, suffix, {}});
    add(same->path, registered);
  }
}

void Router::add(Path& path, const RegisteredRoute& route) {
  path.routes.push_back(&route);
  if (!path.allow.empty()) path.allow.append(", ");
  path.allow.append(method_name(route.route.method));
}

Match Router::choose(const Path& path, Method method, std::string parameter) {
  for (const RegisteredRoute* route : path.routes) {
    if (route->route.method == method) return {route, std::move(parameter), {}};
  }
  return {nullptr, {}, path.allow};
}

Match Router::match(Method method, std::string_view target) const {
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  if (const auto found = literals_.find(path); found != literals_.end()) return choose(found->second, method, {});
  for (const Template& candidate : templates_) {
    const size_t fixed = candidate.prefix.size() + candidate.suffix.size();
    if (path.size() <= fixed || !path.starts_with(candidate.prefix) || !path.ends_with(candidate.suffix)) continue;
    const std::string_view segment = path.substr(candidate.prefix.size(), path.size() - fixed);
    std::string parameter;
    if (segment.find('/') != std::string_view::npos || !percent_decode(segment, parameter)) continue;
    return choose(candidate.path, method, std::move(parameter));
  }
  return {};
}

}  // namespace tuft::api
