// Converts the JSON datums and model inputs of SDK 0.18 to 0.24 to the protobuf messages of SDK 0.25.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/json/json_reader.h"
#include "base/result.h"
#include "tinker/public.pb.h"

namespace tuft::api {

// Appends the tokens of {"chunks": [...]} to `tokens`. Notes problems in the fields' JsonBody. Returns kInvalidArgument
// for a chunk that is not text, which is the error to report.
Status read_tokens(const JsonFields& model_input, std::vector<int32_t>& tokens);

// The field that holds the batch: "forward_backward_input" or "forward_input".
enum class PassField : uint8_t { kForwardBackward, kForward };
// Reads `body` into `request`. After an error, `request` has the run and the seq_id if the body has them.
Status read_forward_backward(std::string& body, PassField field, tinker_public::ForwardBackwardRequest& request);

}  // namespace tuft::api
