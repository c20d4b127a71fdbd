#include "api/json/error_mapping.h"

#include <utility>

#include "api/json/json_writer.h"
#include "openai/errors.h"

namespace tuft::api {

Error malformed_request(std::string message) {
  return invalid_argument(std::move(message), std::string(kMalformedRequest));
}

int http_status(const Error& error) {
  return error.reason == kMalformedRequest ? 422 : openai::http_status(error);
}

Response detail_response(int status, std::string_view detail) {
  JsonWriter json;
  json.begin_object().key("detail").string(detail).end_object();
  return json_response(std::move(json).take(), status);
}

std::string public_message(const Error& error) {
  if (error.code == ErrorCode::kInternal) return "the server failed; its log has the details";
  return error.message.empty() ? std::string(error_code_name(error.code)) : error.message;
}

Response error_response(const Error& error, ErrorShape shape) {
  if (shape == ErrorShape::kOpenAi) return json_response(openai::error_body(error), openai::http_status(error));
  return detail_response(http_status(error), public_message(error));
}

}  // namespace tuft::api
