// Changes to a checkpoint, and the download of its archive.
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "api/handlers/handlers.h"
#include "api/json/catalog_json.h"
#include "api/json/error_mapping.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "api/routing/own_url.h"
#include "api/routing/query.h"
#include "control/checkpoints/checkpoint_actions.h"
#include "control/types/checkpoint.h"
#include "control/views/catalog.h"

namespace tuft::api {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr std::string_view kDownloadPath = "/api/v1/archives?ticket=";
constexpr size_t kTicketBytesMax = 4096;
constexpr size_t kIdempotencyKeyBytesMax = 256;
constexpr int64_t kTtlSecondsMax = std::numeric_limits<int64_t>::max() / kSecond;

Result<control::CheckpointPath> read_path(Exchange& exchange, const std::string& run, const std::string& kind,
                                          const std::string& name) {
  TUFT_ASSIGN(control::CheckpointPath path,
              control::parse_checkpoint_path("tinker://" + run + "/" + kind + "/" + name));
  if (exchange.control.catalog().owns_run(exchange.user, path.run)) exchange.keys.run = path.run;
  return path;
}

// Reads the route's parameters {run}, {kind} and {name}.
Result<control::CheckpointPath> read_path(Exchange& exchange) {
  const std::vector<std::string>& parts = exchange.path_parameters;
  return read_path(exchange, parts[0], parts[1], parts[2]);
}

using Action = std::function<void(control::CheckpointActions&, control::CheckpointActions::Done)>;

// Answers after the action has ended.
Answer answer_after(Exchange& exchange, Action action) {
  control::CheckpointActions& actions = exchange.control.checkpoint_actions();
  AwaitResponse later;
  later.start = [&actions, action = std::move(action)](std::function<void(Result<Response>)> done) {
    action(actions, [done = std::move(done)](const Status& status) {
      done(status.ok() ? Result<Response>(no_content()) : Result<Response>(status.error()));
    });
  };
  return later;
}

Result<Answer> set_public(Exchange& exchange, bool is_public) {
  TUFT_ASSIGN(control::CheckpointPath path, read_path(exchange));
  return answer_after(exchange, [user = exchange.user, path = std::move(path), is_public, trace = exchange.trace](
                                    control::CheckpointActions& actions, control::CheckpointActions::Done done) {
    actions.set_public(user, path, is_public, trace, std::move(done));
  });
}

class ArchiveBody final : public BodyStream {
 public:
  explicit ArchiveBody(std::unique_ptr<control::Archive> archive) : archive_(std::move(archive)) {}

  std::optional<int64_t> length() const override { return archive_->size_bytes(); }
  int64_t buffer_bytes() const override { return 2 * kPieceBytes; }
  void next(std::function<void(Result<std::string>)> done) override { archive_->read(kPieceBytes, std::move(done)); }

 private:
  const std::unique_ptr<control::Archive> archive_;
};

Response archive_response(std::unique_ptr<control::Archive> archive) {
  Response response;
  response.content_type = archive->content_type();
  response.headers = {{"Content-Disposition", "attachment; filename=\"" + archive->file_name() + "\""},
                      {"Cache-Control", "no-store"}};
  response.stream = std::make_shared<ArchiveBody>(std::move(archive));
  return response;
}

}  // namespace

Result<Answer> handle_delete_checkpoint(Exchange& exchange) {
  TUFT_ASSIGN(control::CheckpointPath path, read_path(exchange));
  return answer_after(exchange, [user = exchange.user, path = std::move(path), trace = exchange.trace](
                                    control::CheckpointActions& actions, control::CheckpointActions::Done done) {
    actions.remove(user, path, trace, std::move(done));
  });
}

Result<Answer> handle_make_checkpoint_public(Exchange& exchange) {
  return set_public(exchange, true);
}

Result<Answer> handle_make_checkpoint_private(Exchange& exchange) {
  return set_public(exchange, false);
}

Result<Answer> handle_set_checkpoint_ttl(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  // null removes the expiry. A request that omits the field by mistake must not do that.
  if (!fields.mentions("ttl_seconds")) fields.problem("ttl_seconds", "is required; null removes the expiry");
  const std::optional<int64_t> seconds = fields.optional_integer("ttl_seconds");
  fields.only({"ttl_seconds", "type"});
  TUFT_TRY(body_read(exchange, body.status()));
  if (seconds && (*seconds < 1 || *seconds > kTtlSecondsMax)) {
    return invalid_argument("ttl_seconds must be a number of seconds from 1 to " + std::to_string(kTtlSecondsMax),
                            "invalid_ttl");
  }
  TUFT_ASSIGN(control::CheckpointPath path, read_path(exchange));
  return answer_after(exchange, [user = exchange.user, path = std::move(path), seconds, trace = exchange.trace](
                                    control::CheckpointActions& actions, control::CheckpointActions::Done done) {
    actions.set_ttl(user, path, seconds, trace, std::move(done));
  });
}

Result<Answer> handle_copy_weights(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  // A copy has a run of its own, so there is no session_id and no model_seq_id.
  fields.only({"source_path", "destination_project_id", "ttl_seconds", "weights_access_token", "type"});
  control::CopyWeights request;
  request.source_path = fields.required_string("source_path");
  request.project_id = fields.string("destination_project_id", "");
  if (!is_label(request.project_id, kProjectBytesMax)) {
    fields.problem("destination_project_id", "must be a line of at most 256 bytes");
  }
  request.ttl_seconds = fields.optional_integer("ttl_seconds", 1, kTtlSecondsMax);
  request.access_token = fields.string("weights_access_token", "");
  if (const auto token = exchange.headers.weights_access_token; !token.empty()) request.access_token = token;
  request.idempotency_key = exchange.headers.idempotency_key;
  if (request.idempotency_key.size() > kIdempotencyKeyBytesMax) {
    fields.problem("X-Idempotency-Key", "must have at most 256 bytes");
  }
  TUFT_TRY(body_read(exchange, body.status()));
  control::CheckpointActions& actions = exchange.control.checkpoint_actions();
  AwaitResponse later;
  later.start = [&actions, user = exchange.user, request = std::move(request),
                 trace = exchange.trace](std::function<void(Result<Response>)> done) {
    actions.copy(user, request, trace, [done = std::move(done)](Result<std::string> path) {
      if (!path.ok()) return done(std::move(path).error());
      JsonWriter json;
      json.begin_object().key("tinker_path").string(*path).end_object();
      done(json_response(std::move(json).take()));
    });
  };
  return Answer(std::move(later));
}

Result<Answer> handle_checkpoint_archive(Exchange& exchange) {
  TUFT_ASSIGN(const control::CheckpointPath path, read_path(exchange));
  TUFT_ASSIGN(const auto ticket, exchange.control.checkpoint_actions().archive_ticket(exchange.user, path));
  JsonWriter json;
  json.begin_object().key("url").string(own_url(exchange, std::string(kDownloadPath) + ticket.token));
  json.key("expires").string(control::iso_time(ticket.expires)).end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_external_weights_urls(Exchange& exchange) {
  const std::vector<std::string>& parts = exchange.path_parameters;
  TUFT_ASSIGN(const control::CheckpointPath path, read_path(exchange, parts[0], "external_weights", parts[1]));
  TUFT_ASSIGN(const auto tickets, exchange.control.checkpoint_actions().file_tickets(exchange.user, path));
  JsonWriter json;
  json.begin_object().key("urls").begin_object();
  for (const auto& [name, token] : tickets.files) {
    json.key(name).string(own_url(exchange, std::string(kDownloadPath) + token));
  }
  json.end_object().key("expires").string(control::iso_time(tickets.expires)).end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_download_archive(Exchange& exchange) {
  QueryFields query(exchange.query);
  const std::string ticket = query.text("ticket", kTicketBytesMax).value_or("");
  TUFT_TRY(query.status());
  control::CheckpointActions& actions = exchange.control.checkpoint_actions();
  AwaitResponse later;
  later.start = [&actions, ticket](std::function<void(Result<Response>)> done) {
    actions.open_archive(ticket, [done = std::move(done)](Result<std::unique_ptr<control::Archive>> archive) {
      if (!archive.ok()) return done(std::move(archive).error());
      done(archive_response(std::move(archive).value()));
    });
  };
  return Answer(std::move(later));
}

}  // namespace tuft::api
