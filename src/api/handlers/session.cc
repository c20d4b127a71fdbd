#include "api/handlers/handlers.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"

namespace tuft::api {

Result<Answer> handle_create_session(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::CreateSession request;
  request.tags = fields.string_list("tags");
  request.user_metadata = fields.string_map("user_metadata");
  request.sdk_version = fields.string("sdk_version", "");
  request.project_id = fields.string("project_id", "");
  request.display_name = fields.string("display_name", "");
  request.idempotency_key = std::string(exchange.headers.idempotency_key);
  TUFT_TRY(body_read(exchange, body.status()));

  TUFT_ASSIGN(const control::SessionId session, exchange.control.create_session(exchange.user, request));
  exchange.keys.session = session;
  exchange.describes_client = true;
  JsonWriter json;
  json.begin_object().key("type").string("create_session").key("session_id").string(session.str()).end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_session_heartbeat(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::SessionId session(body.fields().required_id("session_id"));
  TUFT_TRY(body_read(exchange, body.status()));

  exchange.keys.session = session;
  TUFT_TRY(exchange.control.heartbeat(exchange.user, session));
  return json_answer(R"({"type":"session_heartbeat"})");
}

// The API key is the only credential, so revoking it takes effect at once; a token would stay valid.
Result<Answer> handle_auth_token(Exchange&) {
  return invalid_argument(
      "this server issues no tokens (pjwt_auth_enabled is false); send the API key itself as X-API-Key", "no_tokens");
}

// Answers `tinker auth login`. The server knows of a key whose it is, and nothing else.
Result<Answer> handle_own_key(Exchange& exchange) {
  JsonWriter json;
  json.begin_object().key("key_id").integer(1).key("name").string(exchange.user.str()).key("note").string("");
  json.key("details").begin_object();
  json.key("org_details").begin_object().key("name").string("local").end_object();
  json.key("user_details").begin_object().key("email").string("").end_object();
  json.end_object().end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_delete_own_key(Exchange&) {
  return Error{
      ErrorCode::kPermissionDenied,
      "API keys are in the configuration of this server (authorized_users), and only its operator removes them",
      "keys_are_configured"};
}

}  // namespace tuft::api
