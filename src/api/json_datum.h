// Datums and model inputs in JSON, as SDK 0.18 to 0.24 sends them, turned into the protobuf form that SDK 0.25 sends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/json_reader.h"
#include "base/result.h"
#include "tinker/public.pb.h"

namespace tuft::api {

// Appends the tokens of {"chunks": [...]} to `tokens`. Notes what is wrong in `fields`; kInvalidArgument for a kind of
// chunk that is no text.
Status read_tokens(const JsonFields& model_input, std::vector<int32_t>& tokens);

// Which field holds the batch: "forward_backward_input" or "forward_input".
enum class PassField : uint8_t { kForwardBackward, kForward };
Result<tinker_public::ForwardBackwardRequest> read_forward_backward(std::string& body, PassField field);

}  // namespace tuft::api
