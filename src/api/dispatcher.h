// From a request's head to its answer, without sockets: route, key, media type and size are judged before the body is
// read; then the body is decoded and the handler called.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "api/exchange.h"
#include "api/media.h"
#include "api/metrics_page.h"
#include "api/router.h"

namespace tuft::api {

struct RequestHead {
  Method method = Method::kOther;
  std::string_view target;
  RequestHeaders headers;
  std::optional<uint64_t> content_length;
  std::string_view http_version = "1.1";
  bool client_is_local = false;
  std::string_view client_address;  // for the log of refused keys
};

struct Admission {
  Match match;
  control::UserId user;
  BodyLimit body_limit;
  // Why the request gets no further; its answer and the reason for tuft.http.rejected (empty: not counted there).
  std::optional<Response> refusal;
  std::string_view reject_reason;
};

// Thread-safe. What is passed as a reference outlives it.
class Dispatcher {
 public:
  Dispatcher(control::ControlPlane& control, const config::Limits& limits, MetricsAccess metrics,
             std::span<const Route> routes, openai::Service& openai);

  Admission admit(const RequestHead& head) const;
  // Calls the route's handler; what it or a library throws becomes kInternal.
  Result<Answer> handle(Exchange& exchange, const Route& route) const;
  Result<Response> finish(Exchange& exchange, const AwaitFuture& wait, Result<control::FutureSnapshot> snapshot) const;

  const Router& router() const { return router_; }
  control::ControlPlane& control() const { return control_; }
  const config::Limits& limits() const { return limits_; }
  openai::Service& openai() const { return openai_; }

 private:
  BodyLimit body_limit_of(const Route& route) const;

  control::ControlPlane& control_;
  const config::Limits& limits_;
  openai::Service& openai_;
  const MetricsAccess metrics_;
  const Router router_;
};

}  // namespace tuft::api
