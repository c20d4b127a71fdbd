// OTLP requests for people and files. Internal to telemetry.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "telemetry/exporter.h"

namespace tuft::telemetry::internal::otlp {

// The ExportXxxServiceRequest of the signal; null where the bytes are none.
std::unique_ptr<google::protobuf::Message> parse_request(Signal signal, std::string_view request);

// OTLP's own JSON mapping: lowerCamelCase names, ids in hexadecimal, 64-bit integers as strings, enums as numbers.
// Appends one line without a line end.
void append_json(std::string& out, const google::protobuf::Message& message);

}  // namespace tuft::telemetry::internal::otlp
