#include "telemetry/exposition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text.h"
#include "telemetry/context.h"
#include "telemetry/instruments/health.h"
#include "telemetry/log/log_line.h"
#include "telemetry/metric/metric_snapshot.h"
#include "telemetry/metric/metric_store.h"
#include "telemetry/metric/prometheus_names.h"
#include "telemetry/metric/target_info.h"
#include "telemetry/otlp/encode_metrics.h"

namespace tuft::telemetry {
namespace {

using internal::LabelStrings;
using internal::MetricPoint;
using internal::MetricSnapshot;
using internal::PrometheusName;

// One metric with the series of all processes. If a label set occurs twice, the first series is kept.
struct Family {
  PrometheusName name;
  std::string help;
  InstrumentKind kind = InstrumentKind::kGauge;
  std::vector<double> bounds;
  std::map<LabelStrings, MetricPoint> series;
};

using Families = std::map<std::string, Family>;

void add_metric(Families& families, MetricSnapshot metric, const std::string& worker) {
  PrometheusName name = internal::prometheus_name(metric.info);
  const auto [found, added] = families.try_emplace(name.family);
  Family& family = found->second;
  if (added) {
    family = {std::move(name), std::move(metric.info.description), metric.info.kind, std::move(metric.info.bounds), {}};
  } else if (family.name.type != name.type || family.bounds != metric.info.bounds) {
    return;
  }
  for (MetricPoint& point : metric.points) {
    LabelStrings labels;
    for (const auto& [key, value] : point.labels) labels.emplace_back(internal::prometheus_label(key), value);
    if (!worker.empty()) labels.emplace_back("worker", worker);
    // One process may have integer counts and another one decimals.
    if (metric.info.kind == InstrumentKind::kCounter || metric.info.kind == InstrumentKind::kUpDownCounter)
      point.number = static_cast<double>(point.value);
    family.series.try_emplace(std::move(labels), std::move(point));
  }
}

// Escapes the backslash, the line end and, in labels and in OpenMetrics' help, the quote.
void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : internal::to_utf8(text)) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out.push_back(c);
    }
  }
}

// Returns the shortest text that parses to the same number.
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// Returns seconds with three decimals.
std::string time_text(Nanos wall) {
  const std::string millis = std::to_string(wall / kMillisecond % 1000);
  return std::to_string(wall / kSecond) + "." + std::string(3 - millis.size(), '0') + millis;
}

// OpenMetrics requires bounds with a decimal point, so that all producers write the same text.
std::string bound_text(double bound, ExpositionFormat format) {
  std::string text = number_text(bound);
  if (format == ExpositionFormat::kOpenMetrics && text.find_first_of(".enN") == std::string::npos) text += ".0";
  return text;
}

class Writer {
 public:
  explicit Writer(ExpositionFormat format) : format_(format) {}

  void family(const Family& family) {
    const bool open = format_ == ExpositionFormat::kOpenMetrics;
    const std::string name = open ? family.name.family : family.name.series();
    out_ += "# HELP " + name + " ";
    append_escaped(out_, family.help, open);
    out_ += "\n# TYPE " + name + " " + family.name.type + "\n";
    if (open && !family.name.unit.empty()) out_ += "# UNIT " + name + " " + family.name.unit + "\n";
    for (const auto& [labels, point] : family.series) {
      if (family.kind == InstrumentKind::kHistogram) {
        histogram(family, labels, point);
      } else {
        sample(family.name.series(), labels, {}, number_text(point.number));
      }
    }
  }

  // OpenMetrics calls this family "target" and its type "info".
  void target(const LabelStrings& resource) {
    const bool open = format_ == ExpositionFormat::kOpenMetrics;
    const std::string name = open ? "target" : "target_info";
    out_ +=
        "# HELP " + name + " The process that these metrics are of\n# TYPE " + name + (open ? " info\n" : " gauge\n");
    sample("target_info", resource, {}, "1");
  }

  std::string finish() {
    if (format_ == ExpositionFormat::kOpenMetrics) out_ += "# EOF\n";
    return std::move(out_);
  }

 private:
  void histogram(const Family& family, const LabelStrings& labels, const MetricPoint& point) {
    uint64_t below = 0;
    for (size_t i = 0; i < point.counts.size(); ++i) {
      below += point.counts[i];
      const std::string bound = i < family.bounds.size() ? bound_text(family.bounds[i], format_) : "+Inf";
      sample(family.name.family + "_bucket", labels, bound, std::to_string(below), exemplar_of(point, i));
    }
    sample(family.name.family + "_count", labels, {}, std::to_string(point.count));
    sample(family.name.family + "_sum", labels, {}, number_text(point.sum));
  }

  // Only OpenMetrics has exemplars.
  std::string exemplar_of(const MetricPoint& point, size_t bucket) const {
    if (format_ != ExpositionFormat::kOpenMetrics) return {};
    const auto found = std::find_if(point.exemplars.begin(), point.exemplars.end(),
                                    [&](const internal::Exemplar& exemplar) { return exemplar.bucket == bucket; });
    if (found == point.exemplars.end()) return {};
    const SpanContext context{found->trace_id_high, found->trace_id_low, found->span_id};
    std::string out = " # {";
    if (found->in_trace())
      out += "trace_id=\"" + context.trace_id_hex() + "\",span_id=\"" + context.span_id_hex() + "\"";
    return out + "} " + number_text(found->value) + " " + time_text(found->wall);
  }

  void sample(const std::string& name, const LabelStrings& labels, const std::string& bound, const std::string& value,
              const std::string& exemplar = {}) {
    out_ += name;
    if (!labels.empty() || !bound.empty()) {
      char before = '{';
      for (const auto& [key, text] : labels) label(std::exchange(before, ','), key, text);
      if (!bound.empty()) label(before, "le", bound);
      out_.push_back('}');
    }
    out_ += " " + value + exemplar + "\n";
  }

  void label(char before, std::string_view key, std::string_view value) {
    out_.push_back(before);
    out_.append(key);
    out_ += "=\"";
    append_escaped(out_, value, true);
    out_.push_back('"');
  }

  const ExpositionFormat format_;
  std::string out_;
};

struct Target {
  Mutex mutex;
  LabelStrings resource TUFT_GUARDED_BY(mutex);
};

Target& target() {
  static Target& target = *new Target;
  return target;
}

LabelStrings target_labels() {
  Target& of_process = target();
  MutexLock lock(of_process.mutex);
  return of_process.resource;
}

// Removes the part of `text` before `separator`, and the separator, from `text` and returns the part.
std::string_view next_part(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = trimmed(text.substr(0, end));
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return part;
}

struct MediaRange {
  std::string_view type;
  std::string_view version;
  double weight = 1;
};

MediaRange parse_media_range(std::string_view text) {
  MediaRange range{.type = next_part(text, ';'), .version = {}};
  while (!text.empty()) {
    std::string_view parameter = next_part(text, ';');
    const std::string_view key = next_part(parameter, '=');
    std::string_view value = trimmed(parameter);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    if (key == "version") range.version = value;
    if (key != "q") continue;
    range.weight = 0;
    std::from_chars(value.data(), value.data() + value.size(), range.weight);
  }
  return range;
}

}  // namespace

void internal::set_target_info(std::string_view encoded_resource) {
  const auto attributes = decode_resource(encoded_resource);
  if (!attributes.ok()) return;
  // Two attributes may become one label, and a duplicate label makes the whole page unreadable. OpenTelemetry requires
  // that their values are joined.
  std::map<std::string, std::string> labels;
  for (const auto& [key, value] : *attributes) {
    const auto [label, added] = labels.try_emplace(prometheus_label(key), value);
    if (!added) label->second += ";" + value;
  }
  Target& of_process = target();
  MutexLock lock(of_process.mutex);
  of_process.resource = {labels.begin(), labels.end()};
}

ExpositionFormat negotiate_format(std::string_view accept) {
  double open = 0;
  double text = 0;
  while (!accept.empty()) {
    const MediaRange range = parse_media_range(next_part(accept, ','));
    if (range.type == "application/openmetrics-text") {
      const bool known = range.version.empty() || range.version == "1.0.0" || range.version == "0.0.1";
      if (known) open = std::max(open, range.weight);
    } else if (range.type == "text/plain" || range.type == "text/*" || range.type == "*/*") {
      text = std::max(text, range.weight);
    }
  }
  return open > 0 && open >= text ? ExpositionFormat::kOpenMetrics : ExpositionFormat::kPrometheusText;
}

std::string_view content_type(ExpositionFormat format) {
  return format == ExpositionFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                                  : "text/plain; version=0.0.4; charset=utf-8";
}

std::string metrics_snapshot() {
  return internal::otlp::encode_metrics(internal::collect_metrics(), {}, 0, system_clock().wall());
}

std::string render_metrics(ExpositionFormat format, const std::vector<WorkerMetrics>& workers) {
  Families families;
  for (MetricSnapshot& metric : internal::collect_metrics()) add_metric(families, std::move(metric), "");
  for (const WorkerMetrics& worker : workers) {
    auto metrics = internal::decode_metrics(worker.snapshot);
    if (!metrics.ok()) {
      internal::health_metrics().dropped.add(1, {{"signal", "metrics"}, {"reason", "unreadable_snapshot"}});
      continue;
    }
    for (MetricSnapshot& metric : metrics.value()) add_metric(families, std::move(metric), worker.worker);
  }
  Writer writer(format);
  if (const LabelStrings resource = target_labels(); !resource.empty()) writer.target(resource);
  for (const auto& [name, family] : families) writer.family(family);
  return writer.finish();
}

}  // namespace tuft::telemetry
