// Telemetry that exports to a collector in this process until the end of the test.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "telemetry/telemetry.h"
#include "telemetry/testing/otlp_receiver.h"

namespace tuft::telemetry {

class WithCollector {
 public:
  explicit WithCollector(TelemetryConfig config = {}) {
    // A long limit, because a busy machine or a sanitizer makes the collector slow.
    ::setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "30000", 1);
    config.enabled = true;
    config.otlp_endpoint = receiver.endpoint();
    const Status status = init_telemetry(config);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  }
  ~WithCollector() {
    shutdown_telemetry(5 * kSecond);
    ::unsetenv("OTEL_EXPORTER_OTLP_TIMEOUT");
  }
  WithCollector(const WithCollector&) = delete;
  WithCollector& operator=(const WithCollector&) = delete;

  bool flush() { return flush_telemetry(20 * kSecond); }

  std::optional<testing::ReceivedSpan> span(const std::string& name) const {
    for (auto spans = receiver.spans(); testing::ReceivedSpan & span : spans) {
      if (span.name == name) return std::move(span);
    }
    return std::nullopt;
  }
  std::optional<testing::ReceivedLog> log(const std::string& event) const {
    for (auto logs = receiver.logs(); testing::ReceivedLog & log : logs) {
      if (log.event_name == event) return std::move(log);
    }
    return std::nullopt;
  }
  // Returns the value of a counter's series; -1 if there is none.
  double sum(const std::string& name, const std::map<std::string, std::string>& labels = {}) {
    const auto metric = receiver.metric(name);
    const testing::ReceivedPoint* point = metric.has_value() ? metric->point(labels) : nullptr;
    return point == nullptr ? -1 : point->value;
  }

  testing::OtlpReceiver receiver;
};

}  // namespace tuft::telemetry
