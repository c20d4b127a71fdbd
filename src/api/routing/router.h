// Finds the route of a method and a path. A route is one row in handlers/routes.cc and one handler.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/exchange.h"
#include "control/observe/intake.h"
#include "telemetry/attribute.h"

namespace tuft::api {

enum class Method : uint8_t { kGet, kPost, kPut, kDelete, kOther };
std::string_view method_name(Method method);  // "GET", ..., "_OTHER"

// kKey: X-API-Key, else the session of the web console (console_sessions.h). kBearer: "Authorization: Bearer KEY", else
// as kKey. kMetrics: see metrics_page.h. kOpen: no key.
enum class Access : uint8_t { kOpen, kKey, kBearer, kMetrics };
// Which requests of a route get a span and a log record; none before its sender is known (RequestTelemetry).
// kAlways: but of the successful GETs of a user outside of a trace of its client only as many as
// HttpTelemetry::admits_read() lets in. kWhenDelivered: polls that deliver a result, downloads whose address was valid.
// kSome: those that fail, that belong to a trace of their client, and as many more as HttpTelemetry::admits() lets in.
enum class Tracing : uint8_t { kAlways, kNever, kWhenDelivered, kSome };
// Checked against Content-Type and Content-Encoding before the body is read. kOtlp: protobuf, which may be compressed
// with gzip, too.
enum class Accepts : uint8_t { kAnything, kJsonOrProtobuf, kOtlp };

// kIo: for what is brief; route_cost_test.cc says of each route why it is. kWork: the cost grows with what a user has,
// so users take turns. kQuery: turns too, on threads of their own, since a query of the telemetry store may take
// seconds.
enum class Threads : uint8_t { kIo, kWork, kQuery };

// The size of a route's body, as received and after decompression.
inline constexpr int64_t kSmallBody = 64 << 10;
inline constexpr int64_t kLargeBody = std::numeric_limits<int64_t>::max();  // limits.request_body_bytes_max alone

struct Route {
  Method method = Method::kGet;
  // Literal segments and parameters: "{name}" is one whole segment, a final "{name...}" is the rest of the path.
  std::string_view pattern;
  Handler handler = nullptr;
  bool reads = false;  // needs stored state only, so a server that stands by answers it, too
  Access access = Access::kKey;
  Tracing tracing = Tracing::kAlways;
  Accepts accepts = Accepts::kAnything;
  int64_t body_bytes_max = kSmallBody;  // limits.request_body_bytes_max applies, too
  Threads threads = Threads::kIo;       // that call the handler
  bool durable = false;                 // the answer waits until the state that it reports is stored durably
  ErrorShape errors = ErrorShape::kDetail;
  bool of_console = false;  // there only if the console is
  bool is_shared = false;   // the answer may be some seconds old: see shared_answers.h
  // Of a route of the intake, which says how long a body may be, and is asked before one is read and before one is
  // decompressed whether its user may send now.
  std::optional<control::IntakeSignal> intake = {};
};

// Returns all routes of the server. They have static storage.
std::span<const Route> routes();
// Returns the routes of the port that takes OTLP from users' own programs (telemetry.intake.http_port).
std::span<const Route> intake_routes();

// Returns the route of a POST below /api/v1/ that no other route takes: probably an operation of a newer SDK. Its
// handler answers 404. It is not one of routes(). Its parameter is the path.
const Route& unknown_operation_route();

// Returns the text of the answer for a path that no route has. `target` is a path and a query. The path is repeated
// only if it has the form of a path, because a client can send any text.
std::string no_endpoint(std::string_view target);

struct RegisteredRoute {
  Route route;
  telemetry::Name span_name;  // "POST /api/v1/asample"
  size_t index;
};

struct Match {
  const RegisteredRoute* route = nullptr;  // null: the path is unknown or does not have the method
  std::vector<std::string> parameters;     // values of the pattern's parameters, in order
  std::string_view allow;                  // the methods of the path if the method did not match; static storage
};

// Immutable after construction; thread-safe.
class Router {
 public:
  explicit Router(std::span<const Route> routes);

  // Matches the target of a request line; its query is ignored. Parameters are percent-decoded; one with a control
  // character, or a '/' outside "{name...}", does not match. Literal segments are preferred to parameters, and every
  // route to unknown_operation_route().
  Match match(Method method, std::string_view target) const;
  size_t size() const { return routes_.size(); }

 private:
  struct Path {
    std::vector<const RegisteredRoute*> routes;
    std::string allow;
  };
  struct Template {
    std::vector<std::string_view> segments;  // parameters are empty
    bool takes_rest = false;                 // the last segment is "{name...}"
    Path path;
  };

  Path& path_of(std::string_view pattern);
  static bool matches(const Template& candidate, std::string_view path, std::vector<std::string>& parameters);
  static Match choose(const Path& path, Method method, std::vector<std::string> parameters);

  Match find(Method method, std::string_view path) const;

  std::vector<RegisteredRoute> routes_;  // the last is unknown_operation_route()
  std::unordered_map<std::string_view, Path> literals_;
  std::vector<Template> templates_;
};

}  // namespace tuft::api
