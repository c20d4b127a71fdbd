// From method and path to a route. A route is one row in routes.cc and one handler in the file of its resource.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/exchange.h"
#include "telemetry/attribute.h"

namespace tuft::api {

enum class Method : uint8_t { kGet, kPost, kPut, kDelete, kOther };
std::string_view method_name(Method method);  // "GET", ..., "_OTHER"

// kBearer: "Authorization: Bearer KEY", or where there is none the key as in kKey. kMetrics: see metrics_page.h
enum class Access : uint8_t { kOpen, kKey, kBearer, kMetrics };
enum class Tracing : uint8_t { kAlways, kNever, kWhenDelivered };
enum class Accepts : uint8_t { kAnything, kJsonOrProtobuf };  // judged by Content-Type before the body is read

struct Route {
  Method method = Method::kGet;
  // Literal segments and "{name}", which is one whole segment; as the last one "{name...}" is all that is left.
  std::string_view pattern;
  Handler handler = nullptr;
  Access access = Access::kKey;
  Tracing tracing = Tracing::kAlways;
  Accepts accepts = Accepts::kAnything;
  int64_t body_bytes_max = 0;  // 0: limits.request_body_bytes_max
  bool promises = false;       // its answer waits until what it says outlives the server
  ErrorShape errors = ErrorShape::kDetail;
};

// Every route of the server. Static.
std::span<const Route> routes();

struct RegisteredRoute {
  Route route;
  telemetry::Name span_name;  // "POST /api/v1/asample"
  size_t index;
};

struct Match {
  const RegisteredRoute* route = nullptr;  // null: unknown path, or no such method on it
  std::vector<std::string> parameters;     // of the pattern's "{name}", in order
  std::string_view allow;                  // the methods that the path has, where the method was the problem; static
};

// Immutable after construction; thread-safe.
class Router {
 public:
  explicit Router(std::span<const Route> routes);

  // `target` as in the request line: a query is ignored, parameters are percent-decoded; what no id can hold ('/',
  // control characters) matches no parameter, but "{name...}" may hold '/'. A literal segment goes before a parameter.
  Match match(Method method, std::string_view target) const;
  size_t size() const { return routes_.size(); }

 private:
  struct Path {
    std::vector<const RegisteredRoute*> routes;
    std::string allow;
  };
  struct Template {
    std::vector<std::string_view> segments;  // a parameter is empty
    bool takes_rest = false;                 // the last one is "{name...}"
    Path path;
  };

  Path& path_of(std::string_view pattern);
  static bool matches(const Template& candidate, std::string_view path, std::vector<std::string>& parameters);
  static Match choose(const Path& path, Method method, std::vector<std::string> parameters);

  std::vector<RegisteredRoute> routes_;
  std::unordered_map<std::string_view, Path> literals_;
  std::vector<Template> templates_;
};

}  // namespace tuft::api
