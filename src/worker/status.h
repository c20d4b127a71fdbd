// How tuft's errors travel over gRPC. The client's half is actor/status.
#pragma once

#include <grpcpp/grpcpp.h>

#include "base/error.h"

namespace tuft::worker {

// The status to finish a call with; adds the trailing metadata "tuft-code" (the exact code: gRPC has fewer) and
// "tuft-reason".
grpc::Status to_grpc(const Error& error, grpc::ServerContextBase& context);

}  // namespace tuft::worker
