// Encodes the results of operations as JSON. Results of passes and samples are protobuf unless the client asks for
// JSON.
#pragma once

#include <string>

#include "base/result.h"
#include "control/types/types.h"

namespace tuft::api {

// Returns kInternal if a protobuf result is inconsistent.
Result<std::string> future_value_json(control::OperationType operation, const control::FutureValue& value);

}  // namespace tuft::api
