#include "metrics/futures.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <variant>

#include "api/handlers/handlers.h"
#include "api/handlers/json_body.h"
#include "api/json/body_shape.h"
#include "api/json/error_mapping.h"
#include "api/json/future_json.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "api/routing/media.h"
#include "metrics/http.h"

namespace tuft::api {
namespace {

bool is_list_of_texts(const simdjson::dom::element& value) {
  simdjson::dom::array list;
  if (value.get_array().get(list) != simdjson::SUCCESS) return false;
  return std::all_of(list.begin(), list.end(), [](const simdjson::dom::element& item) { return item.is_string(); });
}

// The JSON of a larger result is streamed, and so written on the work threads: 64 KiB of log-probabilities would keep
// the I/O thread for more than a millisecond.
constexpr size_t kStreamedBytesMin = 8 << 10;

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

Result<Response> stream_json(Exchange& exchange, const control::FutureSnapshot& snapshot, size_t result_bytes) {
  constexpr size_t kCharactersOfByte = 4;  // rather more than numbers have
  TUFT_ASSIGN(JsonPieces pieces, result_pieces(snapshot.operation, snapshot.value));
  Response response;
  response.stream =
      body_in_pieces(exchange, std::move(pieces), {},
                     static_cast<int64_t>(std::min(2 * kJsonPieceBytes, kCharactersOfByte * result_bytes)));
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
  const size_t bytes = protobuf == nullptr ? 0 : protobuf->bytes.size();
  if (bytes > kStreamedBytesMin) return stream_json(exchange, snapshot, bytes);
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
  exchange.operation = submission.span;
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

namespace {

// A poll for the samples of a client, while its request waits. It ends with the request.
class Watch {
 public:
  Watch(control::ControlPlane& control, control::UserId user, control::SampleFeed feed)
      : control_(control), user_(std::move(user)), feed_(std::move(feed)) {}
  ~Watch() { control_.end_watch(feed_, number_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void start(int64_t after, bool waits, const std::function<void(Result<Response>)>& done) {
    const auto number = control_.watch_samples(user_, feed_, after, waits, [done](const control::SampleNews& news) {
      metrics::futures().announced.add(static_cast<int64_t>(news.completions.size()));
      done(news_response(news));
    });
    if (number.ok()) {
      number_ = *number;
    } else {
      done(number.error());
    }
  }
  static Response news_response(const control::SampleNews& news) {
    JsonWriter json;
    json.begin_object().key("completions").begin_array();
    for (const control::SampleCompletion& one : news.completions) {
      json.begin_object().key("state").string(one.failed ? "failed" : "finished");
      json.key("request_id").string(one.request.str());
      if (!one.failed) json.key("response_payload_uncompressed_size").integer(one.result_bytes);
      json.end_object();
    }
    json.end_array().key("cursor").integer(news.cursor).end_object();
    return json_response(std::move(json).take());
  }

 private:
  control::ControlPlane& control_;
  const control::UserId user_;
  const control::SampleFeed feed_;
  control::ControlPlane::WaitId number_ = 0;  // 0: it waits for nothing
};

}  // namespace

// The SDK asks so for all samples of a client at once.
Result<Answer> handle_retrieve_futures(Exchange& exchange) {
  TUFT_TRY(admit_json(exchange));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr double kLongest = 3600;
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::SampleFeed feed;
  if (const auto target = fields.required_object("target")) {
    if (target->required_string("type") != "sampling_session") target->problem("type", "must be sampling_session");
    feed.sampler = control::SamplerId(target->required_id("sampling_session_id"));
    feed.client = target->required_integer("cloned_sampler_id", 0, kMost);
    target->only({"type", "sampling_session_id", "cloned_sampler_id"});
  }
  const int64_t after = fields.required_integer("prev_cursor", 0, kMost);
  const double seconds = fields.number("timeout", kLongest);
  if (!(seconds >= 0)) fields.problem("timeout", "must be a number of seconds from 0 on");
  // Results are kept for their time whether the client has read them or not, so the texts are not copied.
  if (const auto ids = fields.value("retrieved_request_ids"); ids && !is_list_of_texts(*ids)) {
    fields.problem("retrieved_request_ids", "must be a list of strings");
  }
  fields.only({"target", "prev_cursor", "timeout", "retrieved_request_ids", "type"});
  TUFT_TRY(body_read(exchange, body.status()));
  exchange.memory.clear();

  AwaitResponse later;
  later.limit = static_cast<Nanos>(std::min(seconds, kLongest) * kSecond);
  later.at_end = [after] { return Watch::news_response({{}, after}); };
  later.start = [watch = std::make_shared<Watch>(exchange.control, exchange.user, std::move(feed)), after,
                 waits = seconds > 0](const std::function<void(Result<Response>)>& done) {
    watch->start(after, waits, done);
  };
  return Answer(std::move(later));
}

Result<Answer> handle_cancel_future(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  const control::RequestId request(fields.required_id("request_id"));
  fields.only({"request_id", "type"});
  TUFT_TRY(body_read(exchange, body.status()));
  TUFT_TRY(exchange.control.cancel_future(exchange.user, request));
  exchange.keys.request = request;
  return json_answer("{}");
}

}  // namespace tuft::api
