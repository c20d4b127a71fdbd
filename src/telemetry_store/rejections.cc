#include "telemetry_store/rejections.h"

#include <map>

#include "telemetry_store/metric_reader.h"
#include "telemetry_store/otlp_reader.h"
#include "telemetry_store/wire.h"

namespace tuft::telemetry_store {
namespace {

using internal::kRecordBytesMax;
using internal::PointFault;

constexpr std::string_view kMalformed = "malformed";

std::string_view text_of(PointFault fault) {
  switch (fault) {
    case PointFault::kUnnamed:
      return "without a metric name";
    case PointFault::kOtherType:
      return "of a metric that is no gauge, sum, histogram or exponential histogram";
    case PointFault::kMalformed:
      return "without a finite value, or with buckets that do not fit their bounds";
  }
  return kMalformed;
}

class Counted {
 public:
  void add(std::string_view reason, size_t records) { by_reason_[reason] += static_cast<int64_t>(records); }

  // `all`: as the reader counted them; it knows of some no more than that.
  Rejections rejections(size_t all) {
    size_t known = 0;
    for (const auto& [reason, records] : by_reason_) known += static_cast<size_t>(records);
    if (all > known) add(kMalformed, all - known);
    Rejections out;
    for (const auto& [reason, records] : by_reason_) out.add(records, reason);
    return out;
  }

 private:
  std::map<std::string_view, int64_t> by_reason_;
};

std::string_view fault_of(std::string_view record, std::string_view of_whole) {
  static const std::string& too_large = *new std::string("larger than " + std::to_string(kRecordBytesMax) + " bytes");
  if (record.size() > kRecordBytesMax) return too_large;
  internal::WireReader reader(record);
  while (reader.next()) {
  }
  return reader.ok() ? of_whole : kMalformed;
}

}  // namespace

Rejections rejected_spans(std::string_view request) {
  Counted counted;
  const size_t all = internal::read_spans(
      request, [](const auto&, const auto&) {},
      [&](std::string_view span) { counted.add(fault_of(span, "without a trace_id or a span_id"), 1); });
  return counted.rejections(all);
}

Rejections rejected_logs(std::string_view request) {
  Counted counted;
  const size_t all = internal::read_logs(
      request, [](const auto&, const auto&) {},
      [&](std::string_view log) { counted.add(fault_of(log, kMalformed), 1); });
  return counted.rejections(all);
}

Rejections rejected_points(std::string_view request) {
  Counted counted;
  const size_t all =
      internal::check_metrics(request, [&](PointFault fault, size_t points) { counted.add(text_of(fault), points); });
  return counted.rejections(all);
}

}  // namespace tuft::telemetry_store
