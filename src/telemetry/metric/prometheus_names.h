// Names of metrics in Prometheus, as Prometheus itself derives them from metrics that it receives over OTLP: a query
// works for metrics that are scraped and for those that are pushed. Internal to telemetry.
//
// Dots and other foreign characters become underscores. The unit is appended as a word (s: _seconds, By: _bytes, 1 of a
// gauge: _ratio) unless the name contains that word; an annotation such as {token} is no unit. The part of a unit after
// a slash is always appended: tokens_per_second with the unit tokens/s becomes tokens_per_second_per_second. Counters
// end in _total.
#pragma once

#include <string>
#include <string_view>

#include "telemetry/instrument.h"

namespace tuft::telemetry::internal {

struct PrometheusName {
  std::string family;  // of a counter: without _total
  std::string type;    // "counter", "gauge", "histogram"
  std::string unit;    // as a word if the family ends in it, else ""
  // Returns the name for queries; a histogram's series add _bucket, _sum and _count.
  std::string series() const { return type == "counter" ? family + "_total" : family; }
};

PrometheusName prometheus_name(const InstrumentInfo& info);

// Returns a label's key in the form [a-zA-Z_][a-zA-Z0-9_]*. A key that begins with a digit or one underscore gets the
// prefix "key".
std::string prometheus_label(std::string_view key);

}  // namespace tuft::telemetry::internal
