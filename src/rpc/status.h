// Carries tuft's errors over gRPC. A gRPC status has fewer codes than ErrorCode, and no reason; both travel as trailing
// metadata.
#pragma once

#include <optional>

#include <grpcpp/grpcpp.h>

#include "base/error.h"

namespace tuft::rpc {

// For servers: returns the status with which to finish a call, and adds the trailing metadata to `context`.
grpc::Status to_grpc(const Error& error, grpc::ServerContextBase& context);

// For clients: returns the error behind a failed status. Returns nothing if the connection broke or was never made
// (gRPC's own UNAVAILABLE, without trailing metadata), because only the caller can explain that to its user.
std::optional<Error> from_grpc(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace tuft::rpc
