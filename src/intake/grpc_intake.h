// OTLP over gRPC from users' own programs (telemetry.intake.grpc_port): the services of OpenTelemetry's collectors for
// traces, logs and metrics. What comes goes through control::Intake, which says what a user may send.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"
#include "control/observe/intake.h"

namespace tuft::intake {

// Tells whose API key it is. Called on gRPC's threads.
using Authenticate = std::function<Result<control::UserId>(std::string_view api_key)>;

inline constexpr size_t kGrpcConnectionsMax = 1024;

struct GrpcOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port (tests)
  config::TlsConfig tls = {};
};

// The key is the metadata x-api-key, or "authorization: Bearer KEY". It is checked before the message is read: a
// stranger gets UNAUTHENTICATED, and leaves neither span nor log line; then RESOURCE_EXHAUSTED tells a user who may
// send nothing now. A message has at most Intake::body_bytes_max(), before and after decompression (gzip or deflate),
// and all that are being received together have 64 MiB. A connection has at most 16 calls at a time, and there are at
// most kGrpcConnectionsMax connections, 256 of one address.
class GrpcIntake {
 public:
  virtual ~GrpcIntake() = default;
  virtual uint16_t port() const = 0;
  // Refuses new calls, ends those that still run after a moment, and closes the port.
  virtual void stop() = 0;
};

// Listens when it returns. Returns kUnavailable if it cannot, and kInvalidArgument if the TLS files cannot be read,
// which happens here only. `intake` must outlive it.
Result<std::unique_ptr<GrpcIntake>> serve_grpc(const GrpcOptions& options, Authenticate authenticate,
                                               control::Intake& intake);

}  // namespace tuft::intake
