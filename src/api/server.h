// The HTTP edge: Tinker's routes over HTTP/1.1. Decodes, authenticates, calls the control plane, encodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "api/metrics_page.h"
#include "api/router.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_plane.h"

namespace tuft::api {

class Server {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 10610;  // 0: any free one (tests)
    int io_threads = 2;
    config::Limits limits;
    MetricsAccess metrics = {};
    config::TlsConfig tls = {};
    Nanos long_poll = 30 * kSecond;  // then 408; must stay below the SDK's 45 s
    std::span<const Route> routes = api::routes();
  };

  // Binds and listens; kUnavailable with the address and the reason where it cannot, kInvalidArgument where the files
  // of TLS do not serve. `control` outlives the server.
  static Result<std::unique_ptr<Server>> create(const Options& options, control::ControlPlane& control);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // Serves until stop() is called. Drives control.sweep().
  virtual void run() = 0;
  // Reads the files of TLS again, for connections from now on; on failure the former ones stay. Thread-safe; reads the
  // disk.
  virtual Status reload_tls() = 0;
  // From any thread or a signal handler's thread: stops accepting, answers open long polls with 408, lets requests in
  // flight finish for up to `grace`, closes, and lets run() return.
  virtual void stop(Nanos grace = 2 * kSecond) = 0;
};

}  // namespace tuft::api
