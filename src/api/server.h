// The HTTP server: Tinker's and OpenAI's endpoints over HTTP/1.1. It authenticates and decodes a request, calls the
// control plane, and encodes the answer.
//
// Rooms: http/ connections, routing/ from a request head to its handler, handlers/ one function per endpoint, json/
// bodies, docs/ the OpenAPI document.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "api/routing/metrics_page.h"
#include "api/routing/router.h"
#include "api/routing/standby.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_plane.h"

namespace tuft::api {

class Server {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 10610;        // 0: any free port (tests)
    std::string public_url = {};  // see config::ServerConfig
    int io_threads = 2;
    config::Limits limits;
    MetricsAccess metrics = {};
    config::TlsConfig tls = {};
    bool console = true;             // serves the web console, and takes its sessions instead of keys
    Nanos long_poll = 30 * kSecond;  // then the answer is 408; must be below the SDK's timeout of 45 s
    std::span<const Route> routes = api::routes();
    // The server of the API, whose connections the gauges show. False for another server beside it in the process.
    bool is_first = true;
    AskStandby standby = {};  // set: this server stands by for another one
  };

  // Binds and listens. Returns kUnavailable, naming the address and the reason, if that fails, and kInvalidArgument if
  // the TLS files cannot be used. `control` must outlive the server.
  static Result<std::unique_ptr<Server>> create(const Options& options, control::ControlPlane& control);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // Serves until stop() is called. Blocks.
  virtual void run() = 0;
  // The requests from now on are for this control plane; those that run keep theirs. Only for a server that stands by.
  // Thread-safe.
  virtual void replace_control(std::shared_ptr<control::ControlPlane> control) = 0;
  // Reads the TLS files again and uses them for new connections; if that fails, the previous ones stay in use.
  // Thread-safe. Reads the disk.
  virtual Status reload_tls() = 0;
  // Stops accepting connections, answers open long polls with 408, gives other requests up to `grace` to finish, closes
  // all connections and makes run() return. Thread-safe.
  virtual void stop(Nanos grace = 2 * kSecond) = 0;
};

}  // namespace tuft::api
