// Encodes the results of operations as JSON. Results of passes and samples are protobuf unless the client asks for
// JSON.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/generator.h"
#include "base/result.h"
#include "control/types/types.h"

namespace tuft::api {

// The pieces of a JSON text, each of about kJsonPieceBytes; none is empty.
using JsonPieces = Generator<std::string>;
inline constexpr size_t kJsonPieceBytes = 256 << 10;

// Begins the JSON of a protobuf result, which may be much larger than the result itself. The pieces keep `value`.
// Returns kInternal if the result is inconsistent; then there are no pieces.
Result<JsonPieces> result_pieces(control::OperationType operation, std::shared_ptr<const control::FutureValue> value);

// Returns the whole JSON of a result. The same error.
Result<std::string> future_value_json(control::OperationType operation,
                                      const std::shared_ptr<const control::FutureValue>& value);

}  // namespace tuft::api
