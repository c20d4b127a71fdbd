#include "control/types/operation_keys.h"

namespace tuft::control {

KeyAttributes::KeyAttributes(const OperationKeys& keys, std::initializer_list<telemetry::Attribute> more) {
  if (!keys.session.empty()) add({"tuft.session_id", keys.session.str()});
  if (!keys.run.empty()) add({"tuft.training_run_id", keys.run.str()});
  if (!keys.sampler.empty()) add({"tuft.sampling_session_id", keys.sampler.str()});
  if (!keys.request.empty()) {
    add({"tuft.request_id", keys.request.str()});
    add({"tuft.operation_type", operation_name(keys.operation)});
    if (keys.operation == OperationType::kForwardBackward) add({"tuft.backward", true});
    if (keys.operation == OperationType::kForward) add({"tuft.backward", false});
  }
  if (!keys.base_model.empty()) add({"tuft.base_model", keys.base_model});
  if (keys.lora_rank > 0) add({"tuft.lora_rank", keys.lora_rank});
  if (keys.seq_id) add({"tuft.seq_id", *keys.seq_id});
  for (const telemetry::Attribute& attribute : more) add(attribute);
}

worker::v1::CallIds call_ids(const OperationKeys& keys) {
  worker::v1::CallIds ids;
  ids.set_tenant(keys.user.str());
  ids.set_session_id(keys.session.str());
  ids.set_training_run_id(keys.run.str());
  ids.set_sampling_session_id(keys.sampler.str());
  ids.set_request_id(keys.request.str());
  ids.set_seq_id(keys.seq_id.value_or(0));
  if (!keys.request.empty()) ids.set_operation_type(std::string(operation_name(keys.operation)));
  return ids;
}

}  // namespace tuft::control
