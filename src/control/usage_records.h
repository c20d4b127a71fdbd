// Token counts and audit events as the persistent store keeps them (docs/formats/persistence.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/usage.h"

namespace tuft::control {

// `number`: unlike that of any other record of its kind; orders records of the same moment.
struct UsageRecord {
  uint64_t number = 0;
  UsageEvent event;
};
struct AuditRecord {
  uint64_t number = 0;
  AuditEvent event;
};

// "training", "sampling_prefill", ... Closed: labels of metrics too.
std::string_view usage_kind_name(UsageKind kind);

std::string to_json(const UsageRecord& record);
std::string to_json(const AuditRecord& record);
// kDataLoss where it is no such record of ours.
Result<UsageRecord> usage_from_json(std::string_view json);
Result<AuditRecord> audit_from_json(std::string_view json);

}  // namespace tuft::control
