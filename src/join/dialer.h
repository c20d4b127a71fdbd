// The worker's end: joins a server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "join/connection.h"
#include "join/tls.h"
#include "tuft/worker/v1/join.pb.h"

namespace tuft::join {

struct DialOptions {
  std::string host;
  uint16_t port = 0;
  TlsFiles tls;                  // the server's certificate must be for `host`
  Nanos timeout = kJoinTimeout;  // of join(), in whole seconds
};

struct Joined {
  worker::v1::JoinResponse response;
  std::unique_ptr<Connection> connection;  // must not outlive the dialer
};

// Confined to its owner's thread.
class Dialer {
 public:
  // Errors: kInvalidArgument for files.
  static Result<std::unique_ptr<Dialer>> create(const DialOptions& options);
  virtual ~Dialer() = default;

  // Connects and joins. The addresses of the host are tried in turn, each for 2 seconds. Blocks up to `timeout`, or
  // until `end_fd` is readable (-1: none), which it does not read; only the resolution of the host's name cannot be
  // interrupted. Errors: kUnavailable "join_failed" if the server cannot be reached, or is not who it should be, or
  // refuses for now; kPermissionDenied "join_refused" if trying again cannot help.
  virtual Result<Joined> join(const worker::v1::JoinRequest& request, int end_fd) = 0;
};

// Splits HOST:PORT; an IPv6 address stands in brackets. Errors: kInvalidArgument.
Result<DialOptions> parse_address(const std::string& text);
// Does the same for one address or several, with commas between them.
Result<std::vector<DialOptions>> parse_addresses(const std::string& text);

}  // namespace tuft::join
