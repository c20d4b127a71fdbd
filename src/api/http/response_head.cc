#include "api/http/response_head.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace tuft::api {
namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
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
    case 409:
      return "Conflict";
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
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

bool has_header(const Response& response, std::string_view name) {
  return std::any_of(response.headers.begin(), response.headers.end(),
                     [&](const auto& header) { return header.first == name; });
}

}  // namespace

bool headers_are_valid(const Response& response) {
  return std::all_of(response.headers.begin(), response.headers.end(), [](const auto& header) {
    return std::all_of(header.second.begin(), header.second.end(),
                       [](unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); });
  });
}

void append_head(std::string& out, const Response& response, const ResponseHead& head) {
  out.append("HTTP/1.1 ");
  append_number(out, response.status);
  out.append(" ").append(reason_phrase(response.status));
  if (response.status != 204 && response.status != 304) {
    out.append("\r\nContent-Type: ").append(response.content_type);
    if (head.framing == Framing::kLength) {
      out.append("\r\nContent-Length: ");
      append_number(out, head.length);
    }
    if (head.framing == Framing::kChunked) out.append("\r\nTransfer-Encoding: chunked");
  }
  out.append("\r\nDate: ").append(head.date);
  if (head.trace.valid()) out.append("\r\ntraceresponse: ").append(telemetry::to_traceparent(head.trace));
  if (!response.allow.empty()) out.append("\r\nAllow: ").append(response.allow);
  for (const auto& [name, value] : response.headers) out.append("\r\n").append(name).append(": ").append(value);
  if ((response.status == 429 || response.status == 503) && !has_header(response, "Retry-After"))
    out.append("\r\nRetry-After: 1");
  if (!head.keep_alive) out.append("\r\nConnection: close");
  out.append("\r\n\r\n");
}

std::string chunk_head(size_t size) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof(text), size, 16).ptr;
  return std::string(text, end).append("\r\n");
}

}  // namespace tuft::api
