#include "telemetry/otlp/json.h"

#include <cmath>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <opentelemetry/proto/collector/logs/v1/logs_service.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "base/text.h"

namespace tuft::telemetry::internal::otlp {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
namespace collector = opentelemetry::proto::collector;

constexpr std::string_view kControlEscape = "\\u00";

template <typename Request>
std::unique_ptr<Message> parse(std::string_view bytes) {
  auto request = std::make_unique<Request>();
  if (!request->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return nullptr;
  return request;
}

template <typename T>
void append_long(std::string& out, T value) {
  out += '"';
  append_number(out, value);
  out += '"';
}

void append_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "\"NaN\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    append_number(out, value);
  }
}

// The only `bytes` fields that we send are ids.
void append_id(std::string& out, std::string_view bytes) {
  out += '"';
  append_hex(out, bytes);
  out += '"';
}

// Appends one value. `index` selects an element of a repeated field; it is -1 for other fields.
void append_value(std::string& out, const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto single, auto repeated) {
    return index < 0 ? (reflection.*single)(message, &field) : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return append_number(out, get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_UINT32:
      return append_number(out, get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return append_long(out, get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT64:
      return append_long(out, get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return append_double(out, get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return append_double(out, static_cast<double>(get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat)));
    case FieldDescriptor::CPPTYPE_BOOL:
      out += get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      return append_number(out, get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = get(&Reflection::GetString, &Reflection::GetRepeatedString);
      return field.type() == FieldDescriptor::TYPE_BYTES ? append_id(out, text)
                                                         : append_quoted(out, text, kControlEscape);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return append_json(out, index < 0 ? reflection.GetMessage(message, &field)
                                        : reflection.GetRepeatedMessage(message, &field, index));
  }
}

}  // namespace

std::unique_ptr<Message> parse_request(Signal signal, std::string_view request) {
  switch (signal) {
    case Signal::kTraces:
      return parse<collector::trace::v1::ExportTraceServiceRequest>(request);
    case Signal::kLogs:
      return parse<collector::logs::v1::ExportLogsServiceRequest>(request);
    case Signal::kMetrics:
      break;
  }
  return parse<collector::metrics::v1::ExportMetricsServiceRequest>(request);
}

void append_json(std::string& out, const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  out += '{';
  for (const FieldDescriptor* field : fields) {
    if (out.back() != '{') out += ',';
    append_quoted(out, field->json_name(), kControlEscape);
    out += ':';
    if (!field->is_repeated()) {
      append_value(out, message, *field, -1);
      continue;
    }
    out += '[';
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int i = 0; i < size; ++i) {
      if (i != 0) out += ',';
      append_value(out, message, *field, i);
    }
    out += ']';
  }
  out += '}';
}

}  // namespace tuft::telemetry::internal::otlp
