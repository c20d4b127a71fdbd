// Takes a request from its head to its handler's answer, independent of sockets.
//
// The room routing/ promises: route, API key, media type and size are checked before the body is read; a handler gets
// only authenticated, decoded requests within their limits; every request is observed, whatever its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "api/exchange.h"
#include "api/routing/console_sessions.h"
#include "api/routing/media.h"
#include "api/routing/metrics_page.h"
#include "api/routing/refused_keys.h"
#include "api/routing/router.h"
#include "api/routing/shared_answers.h"
#include "api/routing/standby.h"
#include "base/mutex.h"
#include "control/queues/work_pool.h"

namespace tuft::api {

struct RequestHead {
  Method method = Method::kOther;  // GET for a HEAD, which is answered as a GET without its body
  bool is_head = false;
  std::string_view target;  // a path and a query
  // A header that must not come twice, and does: a proxy in front of the server may have checked the other one.
  std::string_view repeated_header;
  RequestHeaders headers;
  std::optional<uint64_t> content_length;
  std::string_view http_version = "1.1";
  bool client_is_local = false;
};

// The result of the checks on a request's head.
struct Admission {
  Match match;
  control::UserId user;
  BodyLimit body_limit;
  // If set, the request is refused with this response. `reject_reason` labels it in tuft.http.rejected; empty: not
  // counted there.
  std::optional<Response> refusal;
  std::string_view reject_reason;
  std::optional<RefusedKey> refused_key;
};

// The threads of Threads::kWork and of Threads::kQuery.
struct WorkPools {
  control::WorkPool& work;
  control::WorkPool& queries;
};

// Thread-safe. The objects and the text that it refers to must outlive it.
class Dispatcher {
 public:
  Dispatcher(control::ControlPlane& control, const config::Limits& limits, MetricsAccess metrics,
             std::span<const Route> routes, openai::Service& openai, WorkPools pools, std::string_view public_url,
             ConsoleSessions* console = nullptr, AskStandby standby = {});

  Admission admit(const RequestHead& head) const;
  // Returns true if the request may take too long for an I/O thread: long answers, large bodies, and compressed ones
  // that may become large.
  static bool is_work(const Exchange& exchange, const Route& route);
  // Removes the content encoding of the body and calls the route's handler. An exception becomes kInternal.
  Result<Answer> handle(Exchange& exchange, const Route& route) const;
  // Does the same on a thread of a pool, in the user's turns, and then calls `done`, once, on any thread. `exchange`
  // must live until then. kResourceExhausted if too much work waits.
  void handle_as_work(Exchange& exchange, const Route& route, std::function<void(Result<Answer>)> done) const;
  // Makes the response of a request that waited for a future.
  Result<Response> finish(Exchange& exchange, const AwaitFuture& wait, Result<control::FutureSnapshot> snapshot) const;

  // Returns the answer that goes to the client: that of a standby is another one (standby.h).
  Result<Response> as_told(const Route& route, Result<Response> answer) const;

  const Router& router() const { return router_; }
  // Returns the control plane for one request, which keeps it.
  std::shared_ptr<control::ControlPlane> control() const TUFT_EXCLUDES(control_mutex_);
  void replace_control(std::shared_ptr<control::ControlPlane> control) TUFT_EXCLUDES(control_mutex_);
  bool stands_by() const { return standby_ != nullptr; }
  const config::Limits& limits() const { return limits_; }
  openai::Service& openai() const { return openai_; }
  control::WorkPool& work() const { return pools_.work; }
  std::string_view public_url() const { return public_url_; }
  ConsoleSessions* console() const { return console_; }  // null: there is no console

 private:
  Result<control::UserId> authenticate(const RequestHead& head, const Route& route) const;
  BodyLimit body_limit_of(const Route& route) const;
  Result<Answer> call_handler(Exchange& exchange, const Route& route) const;
  Result<Answer> shared_answer(Exchange& exchange, const Route& route) const;

  mutable Mutex control_mutex_;
  std::shared_ptr<control::ControlPlane> control_ TUFT_GUARDED_BY(control_mutex_);
  const config::Limits& limits_;
  openai::Service& openai_;
  const WorkPools pools_;
  const std::string_view public_url_;
  ConsoleSessions* const console_;
  const AskStandby standby_;
  const MetricsAccess metrics_;
  const Router router_;
  const std::unique_ptr<SharedAnswers> answers_ = std::make_unique<SharedAnswers>();
};

}  // namespace tuft::api
