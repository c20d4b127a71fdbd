#include "api/routing/router.h"

#include <algorithm>
#include <cctype>
#include <ranges>
#include <utility>

#include "api/routing/query.h"
#include "base/check.h"

namespace tuft::api {
namespace {

// Splits "/a/b" into "a" and "b".
std::vector<std::string_view> segments_of(std::string_view pattern) {
  std::vector<std::string_view> segments;
  while (!pattern.empty()) {
    pattern.remove_prefix(1);
    const size_t end = std::min(pattern.find('/'), pattern.size());
    segments.push_back(pattern.substr(0, end));
    pattern.remove_prefix(end);
  }
  return segments;
}

std::string_view path_of_target(std::string_view target) {
  return target.substr(0, target.find_first_of("?#"));
}

// A parameter contains no control character, and a '/' only if it is the rest of the path.
bool decode_parameter(std::string_view segment, bool is_rest, std::string& out) {
  return !segment.empty() && percent_decode(segment, out) && std::ranges::none_of(out, [is_rest](char c) {
    return (c == '/' && !is_rest) || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

}  // namespace

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kPost:
      return "POST";
    case Method::kPut:
      return "PUT";
    case Method::kDelete:
      return "DELETE";
    case Method::kOther:
      return "_OTHER";
  }
  return "_OTHER";
}

Router::Router(std::span<const Route> all) {
  routes_.reserve(all.size() + 1);
  const auto add = [this](const Route& route) {
    const std::string name = std::string(method_name(route.method)) + " " + std::string(route.pattern);
    routes_.push_back({route, telemetry::Name::intern(name), routes_.size()});
  };
  for (const Route& route : all) add(route);
  add(unknown_operation_route());
  for (const RegisteredRoute& registered : std::span(routes_).first(all.size())) {
    Path& path = path_of(registered.route.pattern);
    path.routes.push_back(&registered);
    if (!path.allow.empty()) path.allow.append(", ");
    path.allow.append(method_name(registered.route.method));
    if (registered.route.method == Method::kGet) path.allow.append(", HEAD");
  }
  // Of two templates that match, the one with the earlier literal segment comes first.
  std::stable_sort(templates_.begin(), templates_.end(), [](const Template& a, const Template& b) {
    return std::ranges::lexicographical_compare(
        a.segments, b.segments, [](std::string_view x, std::string_view y) { return x.empty() < y.empty(); });
  });
}

Router::Path& Router::path_of(std::string_view pattern) {
  if (pattern.find('{') == std::string_view::npos) return literals_[pattern];
  std::vector<std::string_view> segments = segments_of(pattern);
  const bool takes_rest = pattern.ends_with("...}");
  for (std::string_view& segment : segments) {
    const bool opens = segment.starts_with('{');
    TUFT_CHECK(opens == segment.ends_with('}') && (opens || segment.find('{') == std::string_view::npos),
               "a parameter of a route is one whole segment");
    if (opens) segment = {};
  }
  for (Template& candidate : templates_) {
    if (candidate.segments == segments && candidate.takes_rest == takes_rest) return candidate.path;
  }
  return templates_.emplace_back(Template{std::move(segments), takes_rest, {}}).path;
}

bool Router::matches(const Template& candidate, std::string_view path, std::vector<std::string>& parameters) {
  parameters.clear();
  for (size_t i = 0; i < candidate.segments.size(); ++i) {
    const bool is_last = i + 1 == candidate.segments.size();
    const bool is_rest = is_last && candidate.takes_rest;
    const size_t end = is_rest ? std::string_view::npos : path.find('/');
    if ((end == std::string_view::npos) != is_last) return false;
    const std::string_view segment = path.substr(0, end);
    if (!is_last) path.remove_prefix(end + 1);
    if (!candidate.segments[i].empty()) {
      if (candidate.segments[i] != segment) return false;
      continue;
    }
    if (!decode_parameter(segment, is_rest, parameters.emplace_back())) return false;
  }
  return true;
}

Match Router::choose(const Path& path, Method method, std::vector<std::string> parameters) {
  for (const RegisteredRoute* route : path.routes) {
    if (route->route.method == method) return {route, std::move(parameters), {}};
  }
  return {nullptr, {}, path.allow};
}

std::string no_endpoint(std::string_view target) {
  constexpr size_t kPathBytesMax = 200;
  const std::string_view path = path_of_target(target);
  const bool is_plain = path.size() <= kPathBytesMax && std::all_of(path.begin(), path.end(), [](char c) {
                          return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                                 std::string_view("/_.:-").find(c) != std::string_view::npos;
                        });
  if (!is_plain) return "this server has no such endpoint; GET /openapi.json lists its endpoints";
  return "this server has no endpoint " + std::string(path) + "; GET /openapi.json lists its endpoints";
}

Match Router::match(Method method, std::string_view target) const {
  const std::string_view path = path_of_target(target);
  Match found = find(method, path);
  if (found.route == nullptr && found.allow.empty() && method == Method::kPost && path.starts_with("/api/v1/")) {
    return {&routes_.back(), {std::string(path)}, {}};
  }
  return found;
}

Match Router::find(Method method, std::string_view path) const {
  if (const auto found = literals_.find(path); found != literals_.end()) return choose(found->second, method, {});
  if (!path.starts_with('/')) return {};
  std::vector<std::string> parameters;
  for (const Template& candidate : templates_) {
    if (matches(candidate, path.substr(1), parameters)) return choose(candidate.path, method, std::move(parameters));
  }
  return {};
}

}  // namespace tuft::api
