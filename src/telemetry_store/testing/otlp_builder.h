// Builds encoded OTLP requests for tests and benchmarks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "telemetry/otlp/wire.h"

namespace tuft::telemetry_store {

using BuiltAttributes = std::vector<std::pair<std::string, std::string>>;

struct BuiltLink {
  uint64_t trace = 0, span = 0;
};
struct BuiltSpan {
  uint64_t trace = 1, span = 1, parent = 0;
  std::string name = "work";
  int kind = 1;
  Nanos start = 0, duration = kMillisecond;
  bool failed = false;
  BuiltAttributes attributes = {};
  std::vector<BuiltLink> links = {};
};
struct BuiltLog {
  Nanos time = 0;
  int severity = 9;
  std::string event = "event", body = "body";
  uint64_t trace = 0, span = 0;
  BuiltAttributes attributes = {};
};

// One resource with the service, one scope with the name "scope".
std::string build_spans(const std::vector<BuiltSpan>& spans, std::string_view service = "tuft");
std::string build_logs(const std::vector<BuiltLog>& logs, std::string_view service = "tuft");
// The ids as the store writes them.
std::string built_trace_id(uint64_t trace);
std::string built_span_id(uint64_t span);

// An ExportMetricsServiceRequest with one metric of one point.
struct BuiltMetric {
  std::string name = "metric", unit = "1";
  enum class Kind : uint8_t { kGauge, kCounter, kHistogram, kExponential } kind = Kind::kGauge;
  bool delta = false;
  double value = 0;  // of a histogram: the sum
  std::vector<double> bounds = {};
  std::vector<uint64_t> counts = {};
  BuiltAttributes labels = {};
  uint64_t exemplar_trace = 0;  // 0: none
  Nanos exemplar_time = 0;
};
std::string build_metrics(const std::vector<BuiltMetric>& metrics, std::string_view service = "tuft");

}  // namespace tuft::telemetry_store
