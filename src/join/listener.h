// The server's end: the port at which workers join.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "join/connection.h"
#include "join/tls.h"
#include "tuft/worker/v1/join.pb.h"

namespace tuft::join {

struct ListenerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port
  TlsFiles tls;
  // Holds the token that workers must send; empty: a certificate of tls.authority is enough. One of them must be given.
  std::filesystem::path token_file;
  Nanos lease = 30 * kSecond;  // sent to the worker; also the time until a peer that is gone is noticed
  int connections_max = 1024;  // those that have not joined yet included
};

// What the listener asks about workers whose token or certificate is right. Both are called on the listener's thread
// and must not block.
class Host {
 public:
  virtual ~Host() = default;
  // Returns the answer to a worker. If its `error` is empty, connected() or gave_up() follows.
  virtual worker::v1::JoinResponse admit(const worker::v1::JoinRequest& request, const std::string& address) = 0;
  // The worker has the answer. Returns what shall be called, on the listener's thread, when the connection has ended.
  virtual std::function<void(End)> connected(const std::string& worker_id, std::unique_ptr<Connection> connection) = 0;
  // The worker was gone before it had the answer.
  virtual void gave_up(const std::string& worker_id) = 0;
  // A connection failed before it joined. `result`: "tls", "request", "token", "too_many". For metrics and logs.
  virtual void refused(std::string_view result, const std::string& address) = 0;
};

// Strangers cost little. A client address (IPv6: a /64) may begin 128 connections at once, and then 4 a second, and a
// /48 of IPv6 8 times as many (begin_limit.h); those that show their token or certificate do not count. What is over is
// closed at once, without TLS. A connection has 10 seconds for its handshake and its request. 256 may be so far at a
// time: a further one takes the place of the oldest.
class Listener {
 public:
  // Listens when it returns. Errors: kInvalidArgument for files, kUnavailable for the address.
  static Result<std::unique_ptr<Listener>> start(const ListenerOptions& options, Host& host,
                                                 const Clock& clock = system_clock());
  // Closes the port. The connections must have been destroyed.
  virtual ~Listener() = default;

  virtual uint16_t port() const = 0;
  // Reads the certificates and the token again, for connections from now on; if that fails, the former stay in use.
  // Thread-safe.
  virtual Status reload() = 0;
};

}  // namespace tuft::join
