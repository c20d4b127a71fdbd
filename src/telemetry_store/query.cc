#include "telemetry_store/query.h"

#include <cstddef>

namespace tuft::telemetry_store {
namespace {

// By SpanFunction, by MetricFunction and by MetricKind.
constexpr std::string_view kSpanFunctions[] = {"count", "errors", "rate", "mean", "p50", "p95", "p99", "busy"};
constexpr std::string_view kMetricFunctions[] = {"rate",       "increase", "last", "mean", "max",
                                                 "mean_value", "p50",      "p90",  "p95",  "p99"};
constexpr std::string_view kMetricKinds[] = {"counter", "updowncounter", "gauge", "histogram"};

template <typename Function, size_t N>
std::optional<Function> find_word(const std::string_view (&words)[N], std::string_view word) {
  for (size_t i = 0; i < N; ++i) {
    if (words[i] == word) return static_cast<Function>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<SpanFunction> find_span_function(std::string_view word) {
  return find_word<SpanFunction>(kSpanFunctions, word);
}

std::optional<MetricFunction> find_metric_function(std::string_view word) {
  return find_word<MetricFunction>(kMetricFunctions, word);
}

std::string_view metric_kind_name(MetricKind kind) {
  return kMetricKinds[static_cast<size_t>(kind)];
}

}  // namespace tuft::telemetry_store
