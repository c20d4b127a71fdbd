// Parses request heads, their headers, routes and queries.
#include <string>

#include <boost/asio/buffer.hpp>

#include "api/http/request_head.h"
#include "api/routing/query.h"
#include "api/routing/router.h"
#include "target.h"

namespace api = tuft::api;

namespace {

constexpr api::Route kRoutes[] = {
    {.method = api::Method::kGet, .pattern = "/api/v1/healthz"},
    {.method = api::Method::kPost, .pattern = "/api/v1/optim_step"},
    {.method = api::Method::kGet, .pattern = "/api/v1/samplers/{sampler_id}"},
    {.method = api::Method::kDelete, .pattern = "/api/v1/training_runs/{run}/checkpoints/{kind}/{name}"},
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const api::Router router(kRoutes);
  api::RequestParser parser;
  parser.header_limit(64 << 10);
  parser.body_limit(1 << 20);
  parser.eager(true);
  boost::system::error_code code;
  parser.put(boost::asio::buffer(data, size), code);
  if (!parser.is_header_done()) return 0;
  const api::RequestHead head = api::parse_head(parser);
  const api::Match match = router.match(head.method, head.target);
  if (match.route != nullptr) tuft::fuzz::require(match.route->route.method == head.method);
  for (const std::string& parameter : match.parameters) {
    const bool is_path = match.route->route.pattern == api::unknown_operation_route().pattern;
    tuft::fuzz::require(!parameter.empty() && (is_path || parameter.find('/') == std::string::npos));
  }
  std::string text;
  (void)api::percent_decode(head.target, text);
  return 0;
}
