// Reads metric points from an encoded ExportMetricsServiceRequest. Internal to telemetry_store.
//
// As otlp_reader.h, it trusts nothing: counts and lengths are limited, and what is malformed is left out and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry_store/otlp_reader.h"
#include "telemetry_store/query.h"

namespace tuft::telemetry_store::internal {

struct MetricView {
  std::string_view service;
  std::string_view name, description, unit;
  MetricKind kind = MetricKind::kGauge;
  bool is_delta = false;
};

struct ExemplarView {
  Nanos time = 0;
  double value = 0;
  TraceId trace;
  uint64_t span = 0;
};

struct PointView {
  bool is_bare = false;  // labels and exemplars are not read
  std::map<std::string, std::string> labels;
  Nanos time = 0;
  double value = 0;  // of a histogram: the sum
  // Of a histogram: counts[i] are values up to bounds[i]; the last has no bound. An exponential histogram is given
  // powers of two as bounds.
  std::vector<uint64_t> counts;
  std::vector<double> bounds;
  std::vector<ExemplarView> exemplars;
};

// Why points are left out: their metric has no name, or is of a type that the store does not have, such as a summary;
// kMalformed: they have no finite value, no valid buckets, or are more than it reads of a request.
enum class PointFault : uint8_t { kUnnamed, kOtherType, kMalformed };

// Returns how many points were left out.
size_t read_metrics(std::string_view request, const std::function<void(const MetricView&, const PointView&)>& visit);
// Calls `left_out` with them, and reads of the other points only what tells that they are kept, which costs little.
size_t check_metrics(std::string_view request, const std::function<void(PointFault fault, size_t points)>& left_out);

}  // namespace tuft::telemetry_store::internal
