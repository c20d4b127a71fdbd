// Telemetry switched on towards a collector in this process, off again at the end of the test.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "telemetry/telemetry.h"
#include "telemetry/testing/otlp_receiver.h"

namespace tuft::telemetry {

class WithCollector {
 public:
  explicit WithCollector(TelemetryConfig config = {}) {
    config.enabled = true;
    config.otlp_endpoint = receiver.endpoint();
    const Status status = init_telemetry(config);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  }
  ~WithCollector() { shutdown_telemetry(5 * kSecond); }

  bool flush() { return flush_telemetry(20 * kSecond); }

  const testing::ReceivedSpan* span(const std::string& name) {
    spans = receiver.spans();
    for (const auto& span : spans) {
      if (span.name == name) return &span;
    }
    return nullptr;
  }
  const testing::ReceivedLog* log(const std::string& event) {
    logs = receiver.logs();
    for (const auto& log : logs) {
      if (log.event_name == event) return &log;
    }
    return nullptr;
  }
  // The value of a counter's series; -1 where there is none.
  double sum(const std::string& name, const std::map<std::string, std::string>& labels = {}) {
    const auto metric = receiver.metric(name);
    const testing::ReceivedPoint* point = metric ? metric->point(labels) : nullptr;
    return point == nullptr ? -1 : point->value;
  }

  testing::OtlpReceiver receiver;
  std::vector<testing::ReceivedSpan> spans;
  std::vector<testing::ReceivedLog> logs;
};

}  // namespace tuft::telemetry
