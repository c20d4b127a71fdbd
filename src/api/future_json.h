// Results of operations in JSON: what every client reads for operations without tensors, and what clients that do not
// ask for protobuf read for passes and samples.
#pragma once

#include <string>

#include "base/result.h"
#include "control/types.h"

namespace tuft::api {

// kInternal where a protobuf result does not hold together.
Result<std::string> future_value_json(control::OperationType operation, const control::FutureValue& value);

}  // namespace tuft::api
