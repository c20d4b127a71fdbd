#include "metrics/futures.h"

#include <charconv>
#include <memory>
#include <utility>
#include <variant>

#include "api/handlers/handlers.h"
#include "api/handlers/json_body.h"
#include "api/json/error_mapping.h"
#include "api/json/future_json.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "api/routing/media.h"
#include "metrics/http.h"

namespace tuft::api {
namespace {

// The JSON of a larger result is streamed.
constexpr size_t kStreamedBytesMin = 64 << 10;

// A failed operation is answered with status 200; any other status would make the SDK poll again.
Response failure_response(const Error& error) {
  JsonWriter json;
  json.begin_object().key("error").string(public_message(error));
  json.key("category").string(is_user_error(error.code) ? "user" : "server").end_object();
  return json_response(std::move(json).take());
}

// The first poll of an operation reports how long its submission took for the client.
void record_submission(const Exchange& exchange, control::OperationType operation) {
  constexpr double kSensibleMax = 3600;
  double seconds = 0;
  const std::string_view text = exchange.headers.submission_seconds;
  if (text.empty() || exchange.headers.poll_iteration != "0") return;
  if (std::from_chars(text.data(), text.data() + text.size(), seconds).ec != std::errc()) return;
  if (!(seconds >= 0 && seconds <= kSensibleMax)) return;
  metrics::http().client_roundtrip_duration.record(seconds, {{"operation_type", control::operation_name(operation)}});
}

Result<Response> stream_json(Exchange& exchange, const control::FutureSnapshot& snapshot) {
  TUFT_ASSIGN(JsonPieces pieces, result_pieces(snapshot.operation, snapshot.value));
  Response response;
  response.stream = body_in_pieces(exchange, std::move(pieces));
  return response;
}

Result<Response> deliver(Exchange& exchange, const control::FutureSnapshot& snapshot) {
  exchange.known_at = system_clock().monotonic();
  record_submission(exchange, snapshot.operation);
  if (snapshot.keys != nullptr) exchange.keys = *snapshot.keys;
  exchange.keys.request = snapshot.request;
  switch (snapshot.state) {
    case control::FutureSnapshot::State::kPending:
      return try_again_response(snapshot);
    case control::FutureSnapshot::State::kFailed:
      exchange.link = snapshot.span;
      exchange.failure = snapshot.error;
      return failure_response(snapshot.error);
    case control::FutureSnapshot::State::kReady:
      break;
  }
  exchange.link = snapshot.span;
  if (!snapshot.value) return internal_error("a finished future has no value");
  const auto* protobuf = std::get_if<control::ProtobufResult>(snapshot.value.get());
  if (protobuf != nullptr && accepts_protobuf(exchange.headers.accept)) {
    Response response;
    response.content_type = kProtobufType;
    response.shared_body = std::shared_ptr<const std::string>(snapshot.value, &protobuf->bytes);
    return response;
  }
  if (protobuf != nullptr && protobuf->bytes.size() > kStreamedBytesMin) return stream_json(exchange, snapshot);
  TUFT_ASSIGN(std::string json, future_value_json(snapshot.operation, snapshot.value));
  return json_response(std::move(json));
}

}  // namespace

Response try_again_response(const control::FutureSnapshot& snapshot) {
  const std::string_view state = control::queue_state_name(snapshot.queue_state);
  metrics::futures().try_again.add(1, {{"queue_state", state}});
  JsonWriter json;
  json.begin_object().key("type").string("try_again").key("request_id").string(snapshot.request.str());
  json.key("queue_state").string(state);
  if (!snapshot.queue_reason.empty()) json.key("queue_state_reason").string(snapshot.queue_reason);
  json.end_object();
  return json_response(std::move(json).take(), 408);
}

Response try_again_response(const control::RequestId& request) {
  control::FutureSnapshot snapshot;
  snapshot.request = request;
  return try_again_response(snapshot);
}

void note_submission(Exchange& exchange, const control::Submitted& submission) {
  exchange.known_at = system_clock().monotonic();
  if (submission.keys != nullptr) exchange.keys = *submission.keys;
  exchange.keys.request = submission.request;
  if (submission.run) exchange.keys.run = *submission.run;
}

Result<Answer> submitted(Exchange& exchange, const Result<control::Submitted>& submission) {
  if (!submission.ok()) return submission.error();
  note_submission(exchange, *submission);
  JsonWriter json;
  json.begin_object().key("request_id").string(submission->request.str()).key("model_id");
  submission->run ? json.string(submission->run->str()) : json.null();
  json.end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_retrieve_future(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::RequestId request(body.fields().required_id("request_id"));
  TUFT_TRY(body_read(exchange, body.status()));
  return Answer(AwaitFuture{request, deliver});
}

Result<Answer> handle_cancel_future(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::RequestId request(body.fields().required_id("request_id"));
  TUFT_TRY(body_read(exchange, body.status()));
  TUFT_TRY(exchange.control.cancel_future(exchange.user, request));
  exchange.keys.request = request;
  return json_answer("{}");
}

}  // namespace tuft::api
