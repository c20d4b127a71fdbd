// The implementation of Connection: two coroutines on an IoThread that copy between a TLS stream and a socket pair,
// because gRPC has no TLS over a descriptor that is connected already.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include <boost/asio/local/stream_protocol.hpp>

#include "base/clock.h"
#include "join/connection.h"
#include "join/tls.h"

namespace tuft::join {

struct RelayOptions {
  // Ends the connection when nothing has come for so long; 0: no limit. Counted from when the descriptor was taken and
  // the first byte has come: a peer waits while the weights are read, and a standby is not spoken to.
  Nanos silence_max = 0;
  // Ends the connection when so much has come before the descriptor was taken; 0: no limit. Nobody reads it until then,
  // so that the end of the peer would not be seen.
  size_t untaken_bytes_max = 0;
  // How often it looks whether the peer takes what waits to be sent, for Connection::last_sign(); 0: never.
  Nanos progress_period = 0;
  // Runs once on the IoThread, after end() has its value.
  std::function<void(End)> on_end = {};
};

// Starts to relay. `stream` has finished its handshake, and nothing else uses it. Errors: kResourceExhausted if the
// process has no descriptors left.
Result<std::unique_ptr<Connection>> start_relay(TlsStream stream, RelayOptions options);

}  // namespace tuft::join
