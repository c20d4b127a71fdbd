// Names of metrics as Prometheus has them, by OpenTelemetry's rules. Internal to telemetry.
//
// Dots and other foreign characters become underscores; the unit is appended as a word (s: _seconds, By: _bytes, 1 of a
// gauge: _ratio) unless the name has that word already; {thing} is no unit; counters end in _total. A back end that
// gets the same metrics over OTLP makes the same names.
#pragma once

#include <string>
#include <string_view>

#include "telemetry/instrument.h"

namespace tuft::telemetry::internal {

struct PrometheusName {
  std::string family;  // of a counter without _total
  std::string type;    // "counter", "gauge", "histogram"
  std::string unit;    // as a word, where the family ends in it; else ""
  // What a query names; a histogram's series add _bucket, _sum and _count.
  std::string series() const { return type == "counter" ? family + "_total" : family; }
};

PrometheusName prometheus_name(const InstrumentInfo& info);

// A label's key: [a-zA-Z_][a-zA-Z0-9_]*.
std::string prometheus_label(std::string_view key);

}  // namespace tuft::telemetry::internal
