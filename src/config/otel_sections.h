// Reads the parts of OpenTelemetry's declarative configuration. A part of otel_file.h.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "config/reader.h"
#include "telemetry/telemetry.h"

namespace tuft::config::otel {

// A map that has one key, which chooses something: an exporter, a sampler, a processor.
struct Choice {
  std::string_view name;
  const Node* value = nullptr;  // may be null in YAML
  std::string path;             // ends in the name
  int line = 0;
};

// Returns nullopt, and reports why, unless `node` is a map with one key.
std::optional<Choice> read_choice(const Node* node, const std::string& path, Problems& problems);

// Returns the one entry of a list, which is required. Reports an empty list, and every further entry.
const Node* only_entry(MapReader& reader, std::string_view key, std::string_view cure);

// Reports the key as not supported if it has a value. A map whose values are all null has none.
void refuse(MapReader& reader, std::string_view key, std::string_view cure);
void refuse(const Choice& choice, std::string_view cure, Problems& problems);
// Reports values below a choice that has no keys of its own.
void refuse_keys(const Choice& choice, Problems& problems);

// Returns the number, which may be hexadecimal.
std::optional<int64_t> whole(MapReader& reader, std::string_view key, int64_t at_least,
                             int64_t at_most = std::numeric_limits<int64_t>::max());

// Records have fixed limits. A limit of the file is accepted if ours are not above it.
void read_limits(const Node* node, const std::string& path, Problems& problems);

// A provider that is absent switches its signal off.
void read_tracer_provider(const Node* node, telemetry::TelemetryConfig& config, Problems& problems);
void read_meter_provider(const Node* node, telemetry::TelemetryConfig& config, Problems& problems);
void read_logger_provider(const Node* node, telemetry::TelemetryConfig& config, Problems& problems);

// Reads the exporter of a reader or processor, whose own time limit is `timeout` ms, and its time limit. `lower`: the
// name of the signal in paths of URLs.
void read_exporter(MapReader& parent, std::string_view lower, int64_t timeout, telemetry::SignalConfig& signal,
                   telemetry::TelemetryConfig& config);

}  // namespace tuft::config::otel
