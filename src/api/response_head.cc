#include "api/response_head.h"

#include <charconv>

namespace tuft::api {
namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 410:
      return "Gone";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

void append_number(std::string& text, size_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  text.append(digits, end);
}

}  // namespace

void append_head(std::string& out, const Response& response, const ResponseHead& head) {
  out.append("HTTP/1.1 ");
  append_number(out, static_cast<size_t>(response.status));
  out.append(" ").append(reason_phrase(response.status)).append("\r\nContent-Type: ").append(response.content_type);
  out.append("\r\nContent-Length: ");
  append_number(out, response.bytes().size());
  out.append("\r\nDate: ").append(head.date);
  if (head.trace.valid()) out.append("\r\ntraceresponse: ").append(telemetry::to_traceparent(head.trace));
  if (!response.allow.empty()) out.append("\r\nAllow: ").append(response.allow);
  if (response.status == 503) out.append("\r\nRetry-After: 1");
  if (!head.keep_alive) out.append("\r\nConnection: close");
  out.append("\r\n\r\n");
}

}  // namespace tuft::api
