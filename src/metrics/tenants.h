// Metrics of sessions, users and their quotas, and the one terminal count of each operation.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct TenantMetrics {
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
                        .description = "Audit events of sessions, runs and checkpoints",
                        .labels = {"event"}}};
  Counter audit_dropped{{.name = "tuft.audit.dropped",
                         .unit = "{event}",
                         .description = "Audit events that newer ones of their user pushed out before their time "
                                        "(limits.audit_events_per_user_max)"}};
  Counter usage_summed{{.name = "tuft.usage.summed",
                        .unit = "{addition}",
                        .description = "Additions to token counts without their session and run, because their user "
                                       "has as many lines as are kept (limits.usage_lines_per_user_max)"}};
  Histogram trace_export_duration{
      {.name = "tuft.trace_export.duration",
       .unit = "s",
       .description = "Time to collect a session's trace from the server and its workers (ready, failed)",
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
  Histogram tenant_queue_wait{{.name = "tuft.tenant.queue_wait",
                               .unit = "s",
                               .description = "An operation from its acceptance until a worker starts on it, by "
                                              "configured user; only with telemetry.tenant_label",
                               .labels = {"tenant"},
                               .bounds = bounds_wait()}};
  Counter quota_refusals{{.name = "tuft.quota.refusals",
                          .unit = "{request}",
                          .description =
                              "Requests refused because their user was at a limit (sessions, session_bytes, runs, "
                              "samplers, futures, samples_in_flight, queued_bytes, checkpoint_bytes, archives)",
                          .labels = {"limit"}}};
};

const TenantMetrics& tenants();

}  // namespace tuft::metrics
