#include <variant>

#include "api/error_mapping.h"
#include "api/future_json.h"
#include "api/handlers.h"
#include "api/json_reader.h"
#include "api/json_writer.h"
#include "api/media.h"
#include "telemetry/log.h"

namespace tuft::api {
namespace {

// A failed operation is a good answer about something bad: any other status would make the SDK poll on.
Response failure_response(const Error& error) {
  JsonWriter json;
  json.begin_object().key("error").string(public_message(error));
  json.key("category").string(is_user_error(error.code) ? "user" : "server").end_object();
  return json_response(std::move(json).take());
}

Result<Response> deliver(Exchange& exchange, const control::FutureSnapshot& snapshot) {
  switch (snapshot.state) {
    case control::FutureSnapshot::State::kPending:
      return try_again_response(snapshot.request);
    case control::FutureSnapshot::State::kFailed:
      exchange.link = snapshot.span;
      exchange.failure = snapshot.error;
      if (snapshot.error.code == ErrorCode::kInternal || snapshot.error.code == ErrorCode::kDataLoss) {
        telemetry::log_error(
            "future.failed", snapshot.error.message,
            {{"tuft.request_id", snapshot.request.str()}, {"error.type", error_code_name(snapshot.error.code)}});
      }
      return failure_response(snapshot.error);
    case control::FutureSnapshot::State::kReady:
      break;
  }
  exchange.link = snapshot.span;
  if (!snapshot.value) return internal_error("a finished future has no value");
  const auto* protobuf = std::get_if<control::ProtobufResult>(snapshot.value.get());
  if (protobuf != nullptr && accepts_protobuf(exchange.headers.accept)) {
    Response response;
    response.content_type = ContentType::kProtobuf;
    response.shared_body = std::shared_ptr<const std::string>(snapshot.value, &protobuf->bytes);
    return response;
  }
  TUFT_ASSIGN(std::string json, future_value_json(snapshot.operation, *snapshot.value));
  return json_response(std::move(json));
}

}  // namespace

Response try_again_response(const control::RequestId& request) {
  JsonWriter json;
  json.begin_object().key("type").string("try_again").key("request_id").string(request.str());
  json.key("queue_state").string("active").end_object();
  return json_response(std::move(json).take(), 408);
}

Result<Answer> submitted(Exchange& exchange, const control::Submitted& submission) {
  exchange.ids.request = submission.request.str();
  JsonWriter json;
  json.begin_object().key("request_id").string(submission.request.str()).key("model_id");
  if (submission.run) {
    exchange.ids.training_run = submission.run->str();
    json.string(submission.run->str());
  } else {
    json.null();
  }
  json.end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_retrieve_future(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::RequestId request(body.fields().required_id("request_id"));
  TUFT_TRY(body.status());
  exchange.ids.request = request.str();
  return Answer(AwaitFuture{request, deliver});
}

}  // namespace tuft::api
