// The Model Context Protocol over HTTP (mcp/protocol.h): the questions of assistants.
#include <utility>

#include "api/handlers/handlers.h"
#include "api/handlers/observe_query.h"
#include "api/routing/console_sessions.h"
#include "api/routing/media.h"
#include "mcp/protocol.h"

namespace tuft::api {

Result<Answer> handle_mcp(Exchange& exchange) {
  // The specification asks for this check: a page of another site must not use the server through its reader's browser.
  TUFT_TRY(check_own_page(exchange.headers, exchange.public_url));
  if (media_type(exchange.headers.content_type) != MediaType::kJson) {
    return Error{ErrorCode::kUnsupportedMedia, "Content-Type must be application/json", "content_type"};
  }
  const mcp::Headers headers{.protocol_version = exchange.headers.mcp_version,
                             .method = exchange.headers.mcp_method,
                             .name = exchange.headers.mcp_name};
  const mcp::Caller caller{.observer = exchange.control.observer(),
                           .user = exchange.user,
                           .clock = system_clock(),
                           .server_version = server_version(),
                           .hold_memory = [&exchange](int64_t bytes) { return hold_memory(exchange, bytes); }};
  mcp::Reply reply = mcp::answer(caller, exchange.body, headers);
  return Answer(json_response(std::move(reply.body), reply.status));
}

}  // namespace tuft::api
