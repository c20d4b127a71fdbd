// OTLP requests as JSON. Internal to telemetry.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "telemetry/otlp/exporter.h"

namespace tuft::telemetry::internal::otlp {

// Parses the ExportXxxServiceRequest of the signal; returns null for malformed bytes.
std::unique_ptr<google::protobuf::Message> parse_request(Signal signal, std::string_view request);

// Appends one line without a line end, in OTLP's JSON mapping: lowerCamelCase names, ids in hexadecimal, 64-bit
// integers as strings, enums as numbers.
void append_json(std::string& out, const google::protobuf::Message& message);

}  // namespace tuft::telemetry::internal::otlp
