#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <opentelemetry/proto/collector/logs/v1/logs_service.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "telemetry/otlp/console_lines.h"
#include "telemetry/otlp/exporters.h"
#include "telemetry/otlp/json.h"

namespace tuft::telemetry::internal::otlp {
namespace {

namespace collector = opentelemetry::proto::collector;

std::string lines_of(Signal signal, const google::protobuf::Message& request) {
  switch (signal) {
    case Signal::kTraces:
      return console_lines(static_cast<const collector::trace::v1::ExportTraceServiceRequest&>(request));
    case Signal::kLogs:
      return console_lines(static_cast<const collector::logs::v1::ExportLogsServiceRequest&>(request));
    case Signal::kMetrics:
      break;
  }
  return console_lines(static_cast<const collector::metrics::v1::ExportMetricsServiceRequest&>(request));
}

// Returns the size of the next write: whole lines, so that lines of three signals do not mix, and no more bytes than a
// pipe accepts without blocking.
size_t next_piece(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text.size();
  const size_t end = text.rfind('\n', PIPE_BUF - 1);
  if (end != std::string_view::npos) return end + 1;
  return std::min<size_t>(PIPE_BUF, text.size());
}

class ConsoleExporter final : public Exporter {
 public:
  ConsoleExporter(Signal signal, Nanos timeout) : signal_(signal), timeout_(timeout) {}

  ExportResult send(std::string_view request) override {
    const auto message = parse_request(signal_, request);
    if (message == nullptr) return failed(ExportResult::Outcome::kRefused, "the request cannot be read");
    const std::string text = lines_of(signal_, *message);
    std::string_view rest = text;
    const Nanos deadline = system_clock().monotonic() + timeout_;
    while (!rest.empty()) {
      if (cancelled_.load() || system_clock().monotonic() > deadline)
        return failed(ExportResult::Outcome::kRefused, "stdout is not being read");
      // stdout may have no reader, and a shutdown must not wait for one.
      constexpr int kPollMs = 100;
      pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      const int ready = ::poll(&out, 1, kPollMs);
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      const ssize_t written = ::write(STDOUT_FILENO, rest.data(), next_piece(rest));
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written < 0) return failed(ExportResult::Outcome::kRefused, "stdout cannot be written");
      rest.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }
  void cancel() override { cancelled_.store(true); }

 private:
  static ExportResult failed(ExportResult::Outcome outcome, std::string message) {
    return {.outcome = outcome, .error_type = "write_failed", .message = std::move(message)};
  }

  const Signal signal_;
  const Nanos timeout_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

Result<std::unique_ptr<Exporter>> make_console_exporter(Signal signal, const SignalSettings& settings) {
  return std::unique_ptr<Exporter>(std::make_unique<ConsoleExporter>(signal, settings.export_timeout));
}

}  // namespace tuft::telemetry::internal::otlp
