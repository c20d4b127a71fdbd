// Metrics of those who look at telemetry, and of programs that send their own.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct ObserveMetrics {
  Counter console_logins{{.name = "tuft.console.logins",
                          .unit = "{login}",
                          .description = "Logins to the web console: ok or refused",
                          .labels = {"status"}}};
  Histogram mcp_tool_duration{{.name = "tuft.mcp.tool.duration",
                               .unit = "s",
                               .description = "Calls of MCP tools: ok or failed",
                               .labels = {"tool", "status"},
                               .bounds = bounds_operation()}};
  Counter intake_requests{{.name = "tuft.intake.requests",
                           .unit = "{request}",
                           .description = "Export requests of users' own programs: ok, partial (some records are not "
                                          "kept), or the short code of the refusal",
                           .labels = {"signal", "status"}}};
};

const ObserveMetrics& observe();

}  // namespace tuft::metrics
