// GET /metrics: its access check, and the thread that renders it, because reading every instrument takes too long for
// an I/O thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/exchange.h"
#include "base/bounded_queue.h"
#include "base/result.h"
#include "telemetry/exposition.h"

namespace tuft::api {

// The settings telemetry.metrics_endpoint and telemetry.metrics_token.
struct MetricsAccess {
  bool enabled = true;
  std::string token = {};  // a secret; empty: only clients on this machine have access
};

// Returns kPermissionDenied, with the cure, if the request may not read the metrics. `client_is_local` says that the
// connection comes from this machine; a proxy's header means that the client is elsewhere. Without a token the Host
// header must be localhost or an address, which stops DNS rebinding from a browser on this machine.
Status check_metrics_access(const MetricsAccess& access, const RequestHeaders& headers, bool client_is_local);

// Returns the key of "Bearer KEY" (the scheme in any case), or "".
std::string_view bearer_key(std::string_view authorization);

// Renders the page on a thread of its own. Thread-safe.
class MetricsPage {
 public:
  MetricsPage() : requests_(kWaitingMax), thread_([this] { run(); }) {}
  ~MetricsPage();
  MetricsPage(const MetricsPage&) = delete;
  MetricsPage& operator=(const MetricsPage&) = delete;

  // Passes the page to `done`, once, on the page's thread; an empty text is a failure. Returns false, and never calls
  // `done`, if too many requests wait.
  bool render(telemetry::ExpositionFormat format, std::vector<telemetry::WorkerMetrics> workers,
              std::function<void(std::string)> done);

 private:
  static constexpr size_t kWaitingMax = 4;

  void run();

  BoundedQueue<std::function<void()>> requests_;
  std::thread thread_;
};

}  // namespace tuft::api
