#include "api/http/request_head.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace tuft::api {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

struct KnownHeader {
  std::string_view name;
  std::string_view RequestHeaders::*place;
};

constexpr KnownHeader kHeaders[] = {
    {"x-api-key", &RequestHeaders::api_key},
    {"traceparent", &RequestHeaders::traceparent},
    {"tracestate", &RequestHeaders::tracestate},
    {"baggage", &RequestHeaders::baggage},
    {"x-forwarded-for", &RequestHeaders::forwarded},
    {"x-forwarded-host", &RequestHeaders::forwarded_host},
    {"x-forwarded-proto", &RequestHeaders::forwarded_proto},
    {"x-real-ip", &RequestHeaders::forwarded},
    {"x-idempotency-key", &RequestHeaders::idempotency_key},
    {"x-tinker-weights-access-token", &RequestHeaders::weights_access_token},
    {"x-tuft-console", &RequestHeaders::tuft_console},
    {"mcp-protocol-version", &RequestHeaders::mcp_version},
    {"mcp-method", &RequestHeaders::mcp_method},
    {"mcp-name", &RequestHeaders::mcp_name},
    {"sec-fetch-site", &RequestHeaders::fetch_site},
    {"x-sdk-version", &RequestHeaders::client_version},
    {"x-sdk-method", &RequestHeaders::client_method},
    {"x-tinker-request-iteration", &RequestHeaders::poll_iteration},
    {"x-tinker-create-promise-roundtrip-time", &RequestHeaders::submission_seconds},
    {"x-stainless-lang", &RequestHeaders::sdk_language},
    {"x-stainless-package-version", &RequestHeaders::sdk_version},
    {"x-stainless-os", &RequestHeaders::sdk_os},
    {"x-stainless-arch", &RequestHeaders::sdk_arch},
    {"x-stainless-runtime", &RequestHeaders::sdk_runtime},
    {"x-stainless-runtime-version", &RequestHeaders::sdk_runtime_version},
};

void read_other(beast::string_view name, std::string_view value, RequestHeaders& headers) {
  const auto* known = std::find_if(std::begin(kHeaders), std::end(kHeaders), [&](const KnownHeader& header) {
    return header.name.size() == name.size() && beast::iequals(name, beast::string_view(header.name));
  });
  if (known == std::end(kHeaders)) return;
  headers.*(known->place) = value;
  const bool presence_counts = known->place == &RequestHeaders::forwarded ||
                               known->place == &RequestHeaders::forwarded_host ||
                               known->place == &RequestHeaders::forwarded_proto;
  if (presence_counts) headers.forwarded = value.empty() ? std::string_view("?") : value;
}

Method method_of(http::verb verb) {
  switch (verb) {
    case http::verb::get:
    case http::verb::head:
      return Method::kGet;
    case http::verb::post:
      return Method::kPost;
    case http::verb::put:
      return Method::kPut;
    case http::verb::delete_:
      return Method::kDelete;
    default:
      return Method::kOther;
  }
}

// Splits an absolute-form target ("http://host/path"), whose host replaces the header's (RFC 9112, 3.2.2).
void read_target(std::string_view target, RequestHead& head) {
  head.target = target;
  const size_t mark = target.find("://");
  if (target.starts_with('/') || mark == std::string_view::npos) return;
  const std::string_view scheme = target.substr(0, mark);
  if (!beast::iequals(scheme, "http") && !beast::iequals(scheme, "https")) return;
  target.remove_prefix(mark + 3);
  const size_t end = std::min(target.find_first_of("/?#"), target.size());
  head.headers.host = target.substr(0, end);
  target.remove_prefix(end);
  head.target = target.starts_with('/') ? target : std::string_view("/");
}

// Notes a header that comes twice although others on the way may have acted on one of its values.
void note_repeated(const RequestParser& parser, RequestHead& head) {
  for (const std::string_view name :
       {"X-API-Key", "Authorization", "Host", "Cookie", "Origin", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"}) {
    if (parser.get().count(name) > 1) head.repeated_header = name;
  }
}

}  // namespace

size_t field_count(const RequestParser& parser) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& field : parser.get()) ++count;
  return count;
}

bool has_unknown_framing(const RequestParser& parser) {
  const size_t codings = parser.get().count(http::field::transfer_encoding);
  if (codings == 0) return false;
  const bool is_chunked = codings == 1 && beast::iequals(parser.get()[http::field::transfer_encoding], "chunked");
  return !is_chunked || parser.get().version() < 11;
}

RequestHead parse_head(const RequestParser& parser) {
  const auto& message = parser.get();
  RequestHead head;
  head.method = method_of(message.method());
  head.is_head = message.method() == http::verb::head;
  head.http_version = message.version() == 10 ? "1.0" : "1.1";
  if (const auto length = parser.content_length()) head.content_length = *length;
  for (const auto& field : message) {
    const std::string_view value = view(field.value());
    switch (field.name()) {
      case http::field::accept:
        head.headers.accept = value;
        break;
      case http::field::accept_encoding:
        head.headers.accept_encoding = value;
        break;
      case http::field::authorization:
        head.headers.authorization = value;
        break;
      case http::field::content_encoding:
        head.headers.content_encoding = value;
        break;
      case http::field::content_type:
        head.headers.content_type = value;
        break;
      case http::field::cookie:
        head.headers.cookie = value;
        break;
      case http::field::forwarded:
      case http::field::via:
        head.headers.forwarded = value.empty() ? std::string_view("?") : value;
        break;
      case http::field::host:
        head.headers.host = value;
        break;
      case http::field::if_none_match:
        head.headers.if_none_match = value;
        break;
      case http::field::origin:
        head.headers.origin = value;
        break;
      case http::field::user_agent:
        head.headers.user_agent = value;
        break;
      default:
        read_other(field.name_string(), value, head.headers);
        break;
    }
  }
  read_target(view(message.target()), head);
  note_repeated(parser, head);
  return head;
}

}  // namespace tuft::api
