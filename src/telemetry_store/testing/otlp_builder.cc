#include "telemetry_store/testing/otlp_builder.h"

#include "telemetry_store/otlp_decoder.h"

namespace tuft::telemetry_store {
namespace {

using telemetry::internal::otlp::WireWriter;

void put_attributes(WireWriter& writer, uint32_t field, const BuiltAttributes& attributes) {
  for (const auto& [key, value] : attributes) {
    const size_t pair = writer.open(field);
    writer.text(1, key);
    const size_t any = writer.open(2);
    writer.bytes(1, value);
    writer.close(any);
    writer.close(pair);
  }
}

std::string id_bytes(uint64_t id) {
  std::string bytes(8, '\0');
  WireWriter::put_raw(bytes.data(), __builtin_bswap64(id));
  return bytes;
}

std::string trace_bytes(uint64_t trace) {
  return id_bytes(0xabcdef) + id_bytes(trace);
}

template <typename Put>
std::string request(std::string_view service, const Put& put) {
  WireWriter writer;
  const size_t resource_records = writer.open(1);
  const size_t resource = writer.open(1);
  put_attributes(writer, 1, {{"service.name", std::string(service)}});
  writer.close(resource);
  const size_t scope_records = writer.open(2);
  const size_t scope = writer.open(1);
  writer.text(1, "scope");
  writer.close(scope);
  put(writer);
  writer.close(scope_records);
  writer.close(resource_records);
  return std::string(writer.view());
}

void put_span(WireWriter& writer, const BuiltSpan& span) {
  const size_t start = writer.open(2);
  writer.bytes(1, trace_bytes(span.trace));
  writer.bytes(2, id_bytes(span.span));
  if (span.parent != 0) writer.bytes(4, id_bytes(span.parent));
  writer.bytes(5, span.name);
  writer.varint(6, static_cast<uint64_t>(span.kind));
  writer.fixed64(7, static_cast<uint64_t>(span.start));
  writer.fixed64(8, static_cast<uint64_t>(span.start + span.duration));
  put_attributes(writer, 9, span.attributes);
  for (const BuiltLink& link : span.links) {
    const size_t at = writer.open(13);
    writer.bytes(1, trace_bytes(link.trace));
    writer.bytes(2, id_bytes(link.span));
    writer.close(at);
  }
  if (span.failed) {
    const size_t status = writer.open(15);
    writer.text(2, "it broke");
    writer.varint(3, 2);
    writer.close(status);
  }
  writer.close(start);
}

void put_log(WireWriter& writer, const BuiltLog& log) {
  const size_t start = writer.open(2);
  writer.fixed64(1, static_cast<uint64_t>(log.time));
  writer.varint(2, static_cast<uint64_t>(log.severity));
  const size_t body = writer.open(5);
  writer.bytes(1, log.body);
  writer.close(body);
  put_attributes(writer, 6, log.attributes);
  if (log.trace != 0) writer.bytes(9, trace_bytes(log.trace));
  if (log.span != 0) writer.bytes(10, id_bytes(log.span));
  writer.text(12, log.event);
  writer.close(start);
}

void put_exemplar(WireWriter& writer, uint32_t field, const BuiltMetric& metric) {
  if (metric.exemplar_trace == 0) return;
  const size_t exemplar = writer.open(field);
  writer.fixed64(2, static_cast<uint64_t>(metric.exemplar_time));
  writer.number(3, metric.value);
  writer.bytes(4, id_bytes(metric.exemplar_trace));
  writer.bytes(5, trace_bytes(metric.exemplar_trace));
  writer.close(exemplar);
}

void put_point(WireWriter& writer, const BuiltMetric& metric) {
  const auto packed = [&writer](uint32_t field, const auto& values) {
    writer.bytes(field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])});
  };
  const size_t point = writer.open(1);
  if (metric.kind == BuiltMetric::Kind::kHistogram) {
    writer.number(5, metric.value);
    packed(6, metric.counts);
    packed(7, metric.bounds);
    put_exemplar(writer, 8, metric);
    put_attributes(writer, 9, metric.labels);
  } else if (metric.kind == BuiltMetric::Kind::kExponential) {
    put_attributes(writer, 1, metric.labels);
    writer.number(5, metric.value);
    const size_t positive = writer.open(8);
    const size_t counts = writer.open(2);
    for (const uint64_t count : metric.counts) writer.set_end(WireWriter::put_varint(writer.room(16), count));
    writer.close(counts);
    writer.close(positive);
  } else {
    writer.number(4, metric.value);
    put_exemplar(writer, 5, metric);
    put_attributes(writer, 7, metric.labels);
  }
  writer.close(point);
}

void put_metric(WireWriter& writer, const BuiltMetric& metric) {
  constexpr uint32_t kFields[] = {5, 7, 9, 10};
  const size_t start = writer.open(2);
  writer.text(1, metric.name);
  writer.text(2, "a metric of a test");
  writer.text(3, metric.unit);
  const size_t data = writer.open(kFields[static_cast<size_t>(metric.kind)]);
  put_point(writer, metric);
  if (metric.kind != BuiltMetric::Kind::kGauge) writer.varint(2, metric.delta ? 1 : 2);
  if (metric.kind == BuiltMetric::Kind::kCounter) writer.varint(3, 1);
  writer.close(data);
  writer.close(start);
}

}  // namespace

std::string build_spans(const std::vector<BuiltSpan>& spans, std::string_view service) {
  return request(service, [&](WireWriter& writer) {
    for (const BuiltSpan& span : spans) put_span(writer, span);
  });
}

std::string build_logs(const std::vector<BuiltLog>& logs, std::string_view service) {
  return request(service, [&](WireWriter& writer) {
    for (const BuiltLog& log : logs) put_log(writer, log);
  });
}

std::string build_metrics(const std::vector<BuiltMetric>& metrics, std::string_view service) {
  return request(service, [&](WireWriter& writer) {
    for (const BuiltMetric& metric : metrics) put_metric(writer, metric);
  });
}

std::string built_trace_id(uint64_t trace) {
  return internal::hex_of(internal::trace_id_of(trace_bytes(trace)));
}

std::string built_span_id(uint64_t span) {
  return internal::hex_of(span);
}

}  // namespace tuft::telemetry_store
