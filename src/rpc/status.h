// Carries tuft's errors over gRPC. A gRPC status has fewer codes than ErrorCode, and no reason; both travel as trailing
// metadata.
#pragma once

#include <optional>

#include <grpcpp/grpcpp.h>

#include "base/error.h"

namespace tuft::rpc {

// Returns the status with which a server finishes a call, and adds the trailing metadata to `context`.
grpc::Status to_grpc(const Error& error, grpc::ServerContextBase& context);

// Returns the error behind a failed status to a client. Returns nothing if the connection broke or was never made
// (gRPC's own UNAVAILABLE, without trailing metadata), because only the caller can explain that to its user.
std::optional<Error> from_grpc(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace tuft::rpc
