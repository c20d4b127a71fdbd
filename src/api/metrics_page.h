// GET /metrics: who may read it, and the thread that writes it - reading every instrument is too long for an I/O
// thread.
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

// telemetry.metrics_endpoint and telemetry.metrics_token.
struct MetricsAccess {
  bool enabled = true;
  std::string token = {};  // a secret; empty: only callers on this machine
};

// kPermissionDenied, saying how to get in. `client_is_local`: the connection comes from this machine; a proxy's mark on
// the request says that the caller does not. Without a token the Host must be localhost or an address, too: a page in a
// browser on this machine can have its own name lead here, but it cannot choose what the browser writes there.
Status check_metrics_access(const MetricsAccess& access, const RequestHeaders& headers, bool client_is_local);

// Thread-safe.
class MetricsPage {
 public:
  MetricsPage() : requests_(kWaitingMax), thread_([this] { run(); }) {}
  ~MetricsPage();
  MetricsPage(const MetricsPage&) = delete;
  MetricsPage& operator=(const MetricsPage&) = delete;

  // Gives the page to `done`, once, on the page's thread. False, without a call, when too many scrapers wait.
  bool render(telemetry::ExpositionFormat format, std::vector<telemetry::WorkerMetrics> workers,
              std::function<void(std::string)> done);

 private:
  static constexpr size_t kWaitingMax = 4;

  void run();

  BoundedQueue<std::function<void()>> requests_;
  std::thread thread_;
};

}  // namespace tuft::api
