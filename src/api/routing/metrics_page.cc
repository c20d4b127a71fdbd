#include "api/routing/metrics_page.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <utility>

#include "control/accounts/api_keys.h"
#include "telemetry/log.h"

namespace tuft::api {
namespace {

bool equals_in_lower_case(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return static_cast<char>(std::tolower(static_cast<unsigned char>(a))) == b; });
}

// Accepts "localhost", an address or "", with or without a port, but no name that DNS could resolve to this machine.
bool is_localhost_or_address(std::string_view host) {
  if (host.starts_with('[')) return true;
  host = host.substr(0, host.find(':'));
  return equals_in_lower_case(host, "localhost") ||
         std::all_of(host.begin(), host.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

}  // namespace

std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!equals_in_lower_case(authorization.substr(0, kScheme.size()), kScheme)) return {};
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' ', kScheme.size()), authorization.size()));
  return authorization;
}

Status check_metrics_access(const MetricsAccess& access, const RequestHeaders& headers, bool client_is_local) {
  if (!access.token.empty()) {
    const std::string_view presented = bearer_key(headers.authorization);
    if (!presented.empty() && control::equal_in_constant_time(access.token, presented)) return {};
    return Error{ErrorCode::kPermissionDenied,
                 "the metrics of this server need the header Authorization: Bearer <telemetry.metrics_token>",
                 "metrics_token"};
  }
  if (client_is_local && headers.forwarded.empty()) {
    if (is_localhost_or_address(headers.host)) return {};
    return Error{ErrorCode::kPermissionDenied,
                 "without telemetry.metrics_token in the server's configuration, its metrics can be read only at "
                 "localhost or an "
                 "IP address, not at the name in the Host header; use http://localhost, or set the token",
                 "metrics_host"};
  }
  return Error{ErrorCode::kPermissionDenied,
               "without telemetry.metrics_token in the server's configuration, its metrics can be read only on its own "
               "machine; set the token and send it as Authorization: Bearer <token>",
               "metrics_not_local"};
}

MetricsPage::~MetricsPage() {
  requests_.close();
  thread_.join();
}

bool MetricsPage::render(telemetry::ExpositionFormat format, std::vector<telemetry::WorkerMetrics> workers,
                         std::function<void(std::string)> done) {
  return requests_.try_push([format, workers = std::move(workers), done = std::move(done)] {
    std::string page;
    try {
      page = telemetry::render_metrics(format, workers);
    } catch (const std::exception& exception) {
      telemetry::log_error("metrics.page_failed", exception.what());
    }
    done(std::move(page));
  });
}

void MetricsPage::run() {
  while (auto request = requests_.pop()) (*request)();
}

}  // namespace tuft::api
