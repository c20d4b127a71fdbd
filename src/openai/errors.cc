#include "openai/errors.h"

#include <nlohmann/json.hpp>

namespace tuft::openai {
namespace {

using Json = nlohmann::ordered_json;

std::string_view type_name(int status) {
  if (status >= 500) return "server_error";
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  return status == 429 ? "rate_limit_error" : "invalid_request_error";
}

// The words of OpenAI that its clients test for.
std::string_view code_name(const Error& error) {
  if (error.code == ErrorCode::kUnauthenticated || error.code == ErrorCode::kPermissionDenied) return "invalid_api_key";
  if (error.code == ErrorCode::kResourceExhausted) return "rate_limit_exceeded";
  return error.reason == "prompt_too_long" ? "context_length_exceeded" : std::string_view(error.reason);
}

}  // namespace

int http_status(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kCancelled:
    case ErrorCode::kUnimplemented:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnauthenticated:
      return 401;
    case ErrorCode::kPermissionDenied:
      return 403;
    case ErrorCode::kResourceExhausted:
      return 429;
    case ErrorCode::kPayloadTooLarge:
      return 413;
    case ErrorCode::kUnsupportedMedia:
      return 415;
    case ErrorCode::kGone:
      return 410;
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kDataLoss:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

std::string error_body(const Error& error, std::string_view param) {
  std::string message = error.message.empty() ? std::string(error_code_name(error.code)) : error.message;
  if (error.code == ErrorCode::kInternal) message = "the server failed; its log has the details";
  const std::string_view code = code_name(error);
  Json body = {{"message", std::move(message)}, {"type", type_name(http_status(error))}, {"param", nullptr}};
  if (!param.empty()) body["param"] = param;
  body["code"] = nullptr;
  if (!code.empty()) body["code"] = code;
  return Json{{"error", std::move(body)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tuft::openai
