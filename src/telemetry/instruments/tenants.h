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
