// Writes single settings as text, for tables of tests.
#pragma once

#include <cstdio>
#include <string>

#include "telemetry/settings/settings.h"

namespace tuft::telemetry::internal {

inline std::string protocol_name(Protocol protocol) {
  constexpr const char* kNames[] = {"grpc", "http", "console", "file", "none"};
  return kNames[static_cast<int>(protocol)];
}
inline std::string protocols(const Settings& settings) {
  return protocol_name(settings.traces.protocol) + " " + protocol_name(settings.metrics.protocol) + " " +
         protocol_name(settings.logs.protocol);
}
inline std::string protocol_origins(const Settings& settings) {
  return settings.traces.protocol_from + " " + settings.metrics.protocol_from + " " + settings.logs.protocol_from;
}
inline std::string endpoints(const Settings& settings) {
  return settings.traces.endpoint + " " + settings.metrics.endpoint + " " + settings.logs.endpoint;
}
inline std::string secure(const Settings& settings) {
  return std::string(settings.traces.tls ? "tls" : "plain") + " " + (settings.logs.tls ? "tls" : "plain");
}
inline std::string headers(const Settings& settings) {
  std::string out;
  for (const SignalSettings* signal : {&settings.traces, &settings.logs}) {
    for (const auto& [name, value] : signal->headers) out += name + "=" + value + ";";
    out += "|";
  }
  return out;
}
inline std::string timeouts(const Settings& settings) {
  const auto ms = [](const SignalSettings& signal) { return std::to_string(signal.export_timeout / kMillisecond); };
  return ms(settings.traces) + " " + ms(settings.metrics) + " " + ms(settings.logs);
}
inline std::string batches(const Settings& settings) {
  std::string out;
  for (const SignalSettings* signal : {&settings.traces, &settings.logs}) {
    out += std::to_string(signal->interval / kMillisecond) + " " + std::to_string(signal->batch_max) + " " +
           std::to_string(signal->queue_max) + ";";
  }
  return out;
}
inline std::string histograms(const Settings& settings) {
  return std::string(kExemplarFilterWords[static_cast<size_t>(settings.exemplar_filter)]) +
         (settings.histogram_aggregation == HistogramAggregation::kExponential ? " exponential" : " explicit");
}
inline std::string sampling(const Settings& settings) {
  char ratio[32];
  std::snprintf(ratio, sizeof(ratio), "%.3g", static_cast<double>(settings.sampling_threshold) / 0x1p64);
  return std::string(ratio) + (settings.sampling_parent_based ? " parent" : " alone") +
         (settings.keep_errors ? " errors" : "") + (settings.keep_slower_than > 0 ? " slow" : "");
}
inline std::string resource(const Settings& settings) {
  std::string out = settings.service_name + ":";
  for (const auto& [key, value] : settings.resource_attributes) out += key + "=" + value + ";";
  return out;
}
inline std::string compression(const Settings& settings) {
  return std::string(settings.traces.compression == Compression::kGzip ? "gzip" : "none") + " " +
         (settings.logs.compression == Compression::kGzip ? "gzip" : "none");
}
inline std::string temporality(const Settings& settings) {
  constexpr const char* kNames[] = {"cumulative", "delta", "lowmemory"};
  return kNames[static_cast<int>(settings.temporality)];
}
inline std::string metric_interval(const Settings& settings) {
  return std::to_string(settings.metrics.interval / kMillisecond);
}
inline std::string propagation(const Settings& settings) {
  return std::string(settings.propagate_trace_context ? "trace" : "") + (settings.propagate_baggage ? "+baggage" : "");
}
inline std::string log_level(const Settings& settings) {
  if (!settings.own_log_level_said) return "as all";
  return settings.own_log_level ? std::to_string(static_cast<int>(*settings.own_log_level)) : "none";
}

}  // namespace tuft::telemetry::internal
