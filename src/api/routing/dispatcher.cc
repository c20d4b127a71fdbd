#include "api/routing/dispatcher.h"

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "api/json/error_mapping.h"
#include "api/routing/media.h"
#include "control/observe/observer.h"
#include "control/types/errors.h"

namespace tuft::api {
namespace {

// For routes without a key: they use no body, and unknown clients must not fill the memory.
constexpr int64_t kStrangersBodyBytesMax = 16 << 10;

Admission refuse(Admission admission, Response response, std::string_view reason) {
  admission.refusal = std::move(response);
  admission.reject_reason = reason;
  return admission;
}

bool is_metrics(const Match& match) {
  return match.route != nullptr && match.route->route.access == Access::kMetrics;
}

// OpenAI's clients know a wrong key by 401, the Tinker SDK by 403.
Error refused_key(const Error& error, ErrorShape shape) {
  return shape == ErrorShape::kOpenAi ? Error{ErrorCode::kUnauthenticated, error.message, error.reason} : error;
}

}  // namespace

Dispatcher::Dispatcher(control::ControlPlane& control, const config::Limits& limits, MetricsAccess metrics,
                       std::span<const Route> routes, openai::Service& openai, WorkPools pools,
                       std::string_view public_url, ConsoleSessions* console, AskStandby standby)
    : control_(std::shared_ptr<void>(), &control),  // not owned
      limits_(limits),
      openai_(openai),
      pools_(pools),
      public_url_(public_url),
      console_(console),
      standby_(std::move(standby)),
      metrics_(std::move(metrics)),
      router_(routes) {}

std::shared_ptr<control::ControlPlane> Dispatcher::control() const {
  MutexLock lock(control_mutex_);
  return control_;
}

void Dispatcher::replace_control(std::shared_ptr<control::ControlPlane> control) {
  MutexLock lock(control_mutex_);
  control_.swap(control);
}

Result<Response> Dispatcher::as_told(const Route& route, Result<Response> answer) const {
  return standby_ ? standby_answer(standby_(), route, std::move(answer)) : std::move(answer);
}

Admission Dispatcher::admit(const RequestHead& head) const {
  Admission admission;
  if (!head.repeated_header.empty()) {
    return refuse(
        std::move(admission),
        detail_response(400, "the header " + std::string(head.repeated_header) + " comes twice; send it once"),
        "repeated_header");
  }
  admission.match = router_.match(head.method, head.target);
  const bool is_off =
      (!metrics_.enabled && is_metrics(admission.match)) ||
      (console_ == nullptr && admission.match.route != nullptr && admission.match.route->route.of_console);
  if (is_off) admission.match = {};
  if (admission.match.route == nullptr) {
    if (admission.match.allow.empty()) {
      return refuse(std::move(admission), detail_response(404, no_endpoint(head.target)), "");
    }
    const std::string_view allow = admission.match.allow;
    Response response = detail_response(405, "this endpoint answers " + std::string(allow) + " only");
    response.allow = allow;
    return refuse(std::move(admission), std::move(response), "");
  }
  const Route& route = admission.match.route->route;
  if (route.access == Access::kKey || route.access == Access::kBearer) {
    Result<control::UserId> user = authenticate(head, route);
    if (!user.ok()) {
      admission.refused_key = count_refused_key(user.error());
      return refuse(std::move(admission), error_response(refused_key(user.error(), route.errors), route.errors),
                    "auth");
    }
    admission.user = std::move(user).value();
  } else if (route.access == Access::kMetrics) {
    const Status allowed = check_metrics_access(metrics_, head.headers, head.client_is_local);
    if (!allowed.ok()) return refuse(std::move(admission), error_response(allowed.error()), "auth");
  }
  if (standby_) {
    const StandbyFacts facts = standby_();
    if (!standby_serves(facts, route)) return refuse(std::move(admission), standby_refusal(facts, route), "standby");
  }
  const bool is_otlp = route.accepts == Accepts::kOtlp;
  if (const Status status = check_content_encoding(head.headers.content_encoding, is_otlp); !status.ok()) {
    return refuse(std::move(admission), error_response(status.error(), route.errors), "media");
  }
  if (route.accepts == Accepts::kJsonOrProtobuf) {
    const MediaType type = media_type(head.headers.content_type);
    if (type != MediaType::kJson && type != MediaType::kProtobuf) {
      return refuse(std::move(admission),
                    detail_response(415, "Content-Type must be application/x-protobuf or application/json"), "media");
    }
  }
  if (is_otlp && media_type(head.headers.content_type) != MediaType::kProtobuf) {
    return refuse(std::move(admission),
                  detail_response(415,
                                  "Content-Type must be application/x-protobuf; for OpenTelemetry's SDKs set "
                                  "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
                  "media");
  }
  admission.body_limit = body_limit_of(route);
  if (head.content_length && *head.content_length > static_cast<uint64_t>(admission.body_limit.bytes)) {
    const Error error = body_too_large(admission.body_limit, "request body");
    return refuse(std::move(admission), error_response(error, route.errors), "body_too_large");
  }
  if (route.intake) {
    const Status may = control()->intake().may_send(admission.user, *route.intake);
    if (!may.ok()) return refuse(std::move(admission), error_response(may.error(), route.errors), "intake");
  }
  return admission;
}

// A key in a header is preferred to the console's session.
Result<control::UserId> Dispatcher::authenticate(const RequestHead& head, const Route& route) const {
  const std::string_view bearer = bearer_key(head.headers.authorization);
  const bool has_bearer = route.access == Access::kBearer && !bearer.empty();
  const std::string_view key = has_bearer ? bearer : head.headers.api_key;
  const std::string_view token = console_ == nullptr ? std::string_view() : console_token(head.headers.cookie);
  if (!key.empty() || token.empty()) return control()->authenticate(key);
  TUFT_TRY(check_from_console(head.headers, public_url_));
  return console_->authenticate(token);
}

BodyLimit Dispatcher::body_limit_of(const Route& route) const {
  int64_t most = std::min(limits_.request_body_bytes_max, route.body_bytes_max);
  const bool wants_key = route.access == Access::kKey || route.access == Access::kBearer;
  if (route.intake) most = std::min(most, control()->intake().body_bytes_max());
  if (!wants_key) most = std::min(most, kStrangersBodyBytesMax);
  return {most, most < limits_.request_body_bytes_max};
}

bool Dispatcher::is_work(const Exchange& exchange, const Route& route) {
  if (route.threads != Threads::kIo) return true;
  if (route.body_bytes_max <= kSmallBody) return false;
  return static_cast<int64_t>(exchange.body.size()) > kSmallBody || is_compressed(exchange.headers.content_encoding);
}

Result<Answer> Dispatcher::call_handler(Exchange& exchange, const Route& route) const {
  const telemetry::ContextScope scope(exchange.trace);
  exchange.handed_at = system_clock().monotonic();
  try {
    Result<Answer> answer = route.is_shared ? shared_answer(exchange, route) : route.handler(exchange);
    // The ids of a refused request are the client's claim and may belong to another user.
    if (!answer.ok()) exchange.keys = {};
    exchange.memory.clear();
    exchange.written_at = system_clock().monotonic();
    return answer;
  } catch (const std::exception& exception) {
    return internal_error(std::string("a handler threw: ") + exception.what());
  }
}

Result<Answer> Dispatcher::shared_answer(Exchange& exchange, const Route& route) const {
  const bool is_operator = exchange.control.observer().is_operator(exchange.user);
  std::string question = is_operator ? "operator " : "user ";
  question.append(route.pattern).append("?").append(exchange.query);
  const Nanos began = exchange.handed_at;
  if (std::optional<Response> known = answers_->find(exchange.user, question, began)) return Answer(std::move(*known));
  Result<Answer> answer = route.handler(exchange);
  if (!answer.ok()) return answer;
  if (auto* const response = std::get_if<Response>(&*answer)) {
    answers_->keep(exchange.user, std::move(question), *response, began, system_clock().monotonic());
  }
  return answer;
}

Result<Answer> Dispatcher::handle(Exchange& exchange, const Route& route) const {
  TUFT_ASSIGN(exchange.body,
              decode_body(std::move(exchange.body), exchange.headers.content_encoding, body_limit_of(route)));
  return call_handler(exchange, route);
}

namespace {

// The decoding of one body: its slices, then the handler. Each is a task of its own, so that others have their turns
// between them, and each is paid before it begins: a slice as one that reads or produces as much as it may.
class BodyWork : public std::enable_shared_from_this<BodyWork> {
 public:
  using Handle = std::function<Result<Answer>()>;
  using Done = std::function<void(Result<Answer>)>;

  BodyWork(control::WorkPool& work, Exchange& exchange, const Route& route, const BodyLimit& limit, Handle handle,
           Done done)
      : work_(work),
        exchange_(exchange),
        route_(route),
        handle_(std::move(handle)),
        done_(std::move(done)),
        decoder_(std::move(exchange.body), exchange.headers.content_encoding, limit,
                 [&exchange](int64_t bytes) { return hold_memory(exchange, bytes); }) {}

  void start() {
    const bool compressed = is_compressed(exchange_.headers.content_encoding);
    const int64_t cost = compressed ? kSliceCost : std::max(decoder_.received(), kAnswerCost);
    const Status posted = work_.post(exchange_.user, cost, [self = shared_from_this(), compressed] {
      compressed ? self->decompress() : self->handle();
    });
    if (!posted.ok()) done_(posted.error());
  }

 private:
  static constexpr auto kSliceCost = static_cast<int64_t>(BodyDecoder::kSliceBytes);
  static constexpr int64_t kAnswerCost = 64 << 10;  // of a handler with a short body

  void decompress() {
    const Result<bool> is_done = route_.intake ? step_of_intake() : step();
    if (!is_done.ok()) return done_(is_done.error());
    // The handler charges the user of the intake, before more of theirs is decompressed.
    if (*is_done && route_.intake) return handle();
    const bool posted =
        *is_done ? work_.post_rest(exchange_.user, decoder_.produced(), [self = shared_from_this()] { self->handle(); })
                 : work_.post_rest(exchange_.user, kSliceCost, [self = shared_from_this()] { self->decompress(); });
    if (!posted) done_(control::shutting_down());
  }
  Result<bool> step() {
    if (work_.closed()) return control::shutting_down();
    try {
      return decoder_.advance();
    } catch (const std::exception& exception) {
      return internal_error(std::string("a body could not be decompressed: ") + exception.what());
    }
  }
  // Who sends many bodies at once is asked for again: what came before may have used up the rate. What is no body, or
  // becomes too large, is charged as if it had come whole, because it made the work.
  Result<bool> step_of_intake() {
    control::Intake& intake = exchange_.control.intake();
    TUFT_TRY(intake.may_send(exchange_.user, *route_.intake));
    Result<bool> is_done = step();
    const bool is_of_body = !is_done.ok() && (is_done.error().code == ErrorCode::kInvalidArgument ||
                                              is_done.error().code == ErrorCode::kPayloadTooLarge);
    if (is_of_body) intake.charge_refused(exchange_.user, intake.body_bytes_max());
    return is_done;
  }
  void handle() {
    if (work_.closed()) return done_(control::shutting_down());
    exchange_.body = decoder_.take();
    done_(handle_());
  }

  control::WorkPool& work_;
  Exchange& exchange_;
  const Route& route_;
  const Handle handle_;
  const Done done_;
  BodyDecoder decoder_;
};

}  // namespace

void Dispatcher::handle_as_work(Exchange& exchange, const Route& route,
                                std::function<void(Result<Answer>)> done) const {
  const auto work = std::make_shared<BodyWork>(
      route.threads == Threads::kQuery ? pools_.queries : pools_.work, exchange, route, body_limit_of(route),
      [this, &exchange, &route] { return call_handler(exchange, route); }, std::move(done));
  work->start();
}

Result<Response> Dispatcher::finish(Exchange& exchange, const AwaitFuture& wait,
                                    Result<control::FutureSnapshot> snapshot) const {
  if (!snapshot.ok()) return std::move(snapshot).error();
  try {
    Result<Response> response = wait.finish(exchange, *snapshot);
    exchange.written_at = system_clock().monotonic();
    return response;
  } catch (const std::exception& exception) {
    return internal_error(std::string("a handler threw: ") + exception.what());
  }
}

}  // namespace tuft::api
