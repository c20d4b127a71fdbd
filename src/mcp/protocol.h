// The Model Context Protocol, independent of HTTP: from the body of a POST to its answer.
//
// Revision 2026-07-28 of the specification is served, in which every request stands alone; and for older clients the
// revisions 2025-11-25 and 2025-06-18, whose handshake is answered without a session. There are tools only; all of them
// only read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "control/observe/observer.h"
#include "control/types/types.h"

namespace tuft::mcp {

// The headers that repeat parts of the body. Empty: the header is absent.
struct Headers {
  std::string_view protocol_version;  // MCP-Protocol-Version
  std::string_view method;            // Mcp-Method
  std::string_view name;              // Mcp-Name
};

// Who asks, and what is asked.
struct Caller {
  const control::Observer& observer;
  const control::UserId& user;
  const Clock& clock;
  std::string_view server_version;
  // Charges memory to the user until the message has been answered. Its error is that of the tool.
  std::function<Status(int64_t bytes)> hold_memory;
};

struct Reply {
  int status = 200;
  std::string body;  // JSON; empty: none (of a notification, status 202)
};

// Answers one message. Reads the telemetry store: call it on a work thread. Any text is allowed as `body`; its size is
// the caller's to limit, and the size of the answer is limited here.
Reply answer(const Caller& caller, std::string_view body, const Headers& headers);

}  // namespace tuft::mcp
