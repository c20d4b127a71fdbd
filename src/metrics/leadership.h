// Metrics of servers that share a store.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct LeadershipMetrics {
  Gauge leader{{.name = "tuft.leader",
                .unit = "{server}",
                .description = "1 while this server leads, 0 while it stands by; absent without a shared store"}};
  Gauge standby{{.name = "tuft.leader.standby",
                 .unit = "{server}",
                 .description = "1 while another server stands by for this one, which leads, else 0"}};
  Counter changes{{.name = "tuft.leader.changes",
                   .unit = "{change}",
                   .description = "Changes of this server's role",
                   .labels = {"event"}}};
  Histogram takeover_duration{{.name = "tuft.leader.takeover.duration",
                               .unit = "s",
                               .description = "From the election to the first request that the new leader can answer",
                               .bounds = bounds_operation()}};
};

const LeadershipMetrics& leadership();

}  // namespace tuft::metrics
