// Sessions, tenants and the one terminal count of each operation. Part of Metrics.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry {

struct TenantInstruments {
  UpDownCounter sessions_active{
      {.name = "tuft.sessions.active", .unit = "{session}", .description = "Client sessions alive"}};
  Counter sessions_expired{{.name = "tuft.sessions.expired",
                            .unit = "{session}",
                            .description = "Sessions that the server closed",
                            .labels = {"reason"}}};
  Counter requests_terminal{
      {.name = "tuft.requests.terminal",
       .unit = "{request}",
       .description = "Operations that ended, each counted once (ok, failed, cancelled, timeout, rejected)",
       .labels = {"operation_type", "base_model", "status"}}};
  Counter audit_events{{.name = "tuft.audit.events",
                        .unit = "{event}",
                        .description = "What happened to sessions, runs and checkpoints, as the audit lists it",
                        .labels = {"event"}}};
  Counter client_events_dropped{{.name = "tuft.client.events.dropped",
                                 .unit = "{event}",
                                 .description = "Events of SDK clients that were over a limit (count, bytes)",
                                 .labels = {"reason"}}};
  Histogram trace_export_duration{
      {.name = "tuft.trace_export.duration",
       .unit = "s",
       .description = "Gathering the trace of a session from the server and its workers (ready, failed)",
       .labels = {"outcome"},
       .bounds = bounds_operation()}};
  Counter tenant_requests{{.name = "tuft.tenant.requests",
                           .unit = "{request}",
                           .description = "Operations by configured user; only with telemetry.tenant_label",
                           .labels = {"tenant", "operation_type"}}};
  Counter tenant_tokens{
      {.name = "tuft.tenant.tokens",
       .unit = "{token}",
       .description = "Tokens (train, input, output) by configured user; only with telemetry.tenant_label",
       .labels = {"tenant", "kind"}}};
};

}  // namespace tuft::telemetry
