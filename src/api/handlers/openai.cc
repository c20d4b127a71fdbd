#include <utility>

#include "api/handlers/handlers.h"
#include "api/routing/query.h"
#include "base/id.h"
#include "openai/service.h"
#include "telemetry/trace.h"

namespace tuft::api {
namespace {

constexpr std::string_view kEventStreamType = "text/event-stream; charset=utf-8";
// Slightly longer than the limit of a sample in a worker.
constexpr Nanos kAnswerLimit = 620 * kSecond;

constexpr size_t kModelBytesMax = 1024;

// What waits in the stream is charged to its user by openai::Completion.
class EventBody final : public BodyStream {
 public:
  explicit EventBody(std::shared_ptr<openai::EventStream> events) : events_(std::move(events)) {}
  int64_t buffer_bytes() const override { return 2 * static_cast<int64_t>(openai::kAnswerPieceBytes); }
  void next(std::function<void(Result<std::string>)> done) override { events_->next(std::move(done)); }

 private:
  const std::shared_ptr<openai::EventStream> events_;
};

Response to_response(openai::Reply reply) {
  Response response = json_response(std::move(reply.body), reply.status);
  if (reply.events == nullptr) return response;
  if (!reply.is_json) {
    response.content_type = kEventStreamType;
    response.headers.emplace_back("Cache-Control", "no-cache");
  }
  response.stream = std::make_shared<EventBody>(std::move(reply.events));
  return response;
}

Result<Answer> complete(Exchange& exchange, openai::Endpoint endpoint) {
  const control::RequestId id(random_uuid());
  const std::string_view type = control::operation_name(control::OperationType::kSample);
  exchange.held_keys = telemetry::SharedKeys(
      exchange.trace,
      {{"tuft.request_id", id.str()}, {"tuft.operation_type", type}, {"tuft.user", exchange.user.str()}});
  exchange.operation = exchange.held_keys.context();
  AwaitResponse later;
  later.limit = kAnswerLimit;
  // `start` owns `pending`: destroying it cancels a request for which no client waits.
  later.start = [service = exchange.openai, endpoint, user = exchange.user, id, body = std::move(exchange.body),
                 trace = exchange.operation,
                 pending = openai::Service::PendingPtr()](std::function<void(Result<Response>)> done) mutable {
    pending = service->complete(endpoint, user, id, std::move(body), trace,
                                [done = std::move(done)](openai::Reply reply) { done(to_response(std::move(reply))); });
  };
  return Answer(std::move(later));
}

}  // namespace

Result<Answer> handle_oai_completions(Exchange& exchange) {
  return complete(exchange, openai::Endpoint::kCompletions);
}

Result<Answer> handle_oai_chat_completions(Exchange& exchange) {
  return complete(exchange, openai::Endpoint::kChat);
}

Result<Answer> handle_oai_models(Exchange& exchange) {
  QueryFields query(exchange.query);
  const std::string after = query.text("after", kModelBytesMax).value_or("");
  const int64_t limit = query.integer("limit", openai::kModelsMax, 1, openai::kModelsMax);
  TUFT_TRY(query.status());
  return Answer(to_response(exchange.openai->list_models(exchange.user, after, limit)));
}

Result<Answer> handle_oai_model(Exchange& exchange) {
  return Answer(to_response(exchange.openai->get_model(exchange.user, exchange.path_parameters[0])));
}

}  // namespace tuft::api
