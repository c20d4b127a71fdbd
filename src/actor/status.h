// How tuft's errors travel over gRPC, the client's half. The worker's is worker/status.
#pragma once

#include <optional>

#include <grpcpp/grpcpp.h>

#include "base/error.h"

namespace tuft::actor {

// The error behind a failed status. Nothing where the connection broke or was never made, which the caller knows
// better how to tell: gRPC's own UNAVAILABLE, without the worker's "tuft-code".
std::optional<Error> from_grpc(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace tuft::actor
