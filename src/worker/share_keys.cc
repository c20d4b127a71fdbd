#include "worker/share_keys.h"

#include <string>

namespace tuft::worker {

std::vector<telemetry::Attribute> share_keys(const v1::CallIds& ids, std::string_view base_model) {
  std::vector<telemetry::Attribute> keys;
  keys.reserve(8);  // callers add their own
  const auto add = [&keys](telemetry::Name key, std::string_view value) {
    if (!value.empty()) keys.push_back({key, value});
  };
  add("tuft.session_id", ids.session_id());
  if (ids.session_id().empty()) add("tuft.user", ids.tenant());
  add("tuft.training_run_id", ids.training_run_id());
  add("tuft.sampling_session_id", ids.sampling_session_id());
  add("tuft.request_id", ids.request_id());
  add("tuft.operation_type", ids.operation_type());
  add("tuft.base_model", base_model);
  return keys;
}

}  // namespace tuft::worker
