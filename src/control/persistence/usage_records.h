// The records of token counts and audit events in the persistent store (docs/formats/persistence.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/types/usage_event.h"

namespace tuft::control {

// `number` is unique among the records of a kind, and orders records of the same moment.
struct UsageRecord {
  uint64_t number = 0;
  UsageEvent event;
};
struct AuditRecord {
  uint64_t number = 0;
  AuditEvent event;
};

// Returns "training", "sampling_prefill", ...: a closed set, also used as labels of metrics.
std::string_view usage_kind_name(UsageKind kind);

std::string to_json(const UsageRecord& record);
std::string to_json(const AuditRecord& record);
// kDataLoss if the text is not such a record.
Result<UsageRecord> usage_from_json(std::string_view json);
Result<AuditRecord> audit_from_json(std::string_view json);

}  // namespace tuft::control
