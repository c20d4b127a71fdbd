// Checks that other readers of the format can read the metrics page with every metric of the product on it.
#include "telemetry/exposition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "metrics/catalogue.h"
#include "telemetry/metric/metric_store.h"
#include "telemetry/otlp/encode_metrics.h"

namespace tuft::metrics {
namespace {

using telemetry::ExpositionFormat;
using telemetry::InstrumentInfo;
using telemetry::InstrumentKind;
using telemetry::internal::MetricPoint;
using telemetry::internal::MetricSnapshot;

// Records every instrument of the product once, and values that are hard to write.
std::string everything(ExpositionFormat format) {
  std::vector<MetricSnapshot> metrics;
  register_all();
  for (const InstrumentInfo& info : telemetry::instrument_catalogue()) {
    if (info.name.starts_with("test.")) continue;
    MetricSnapshot metric{.info = info, .points = {}};
    MetricPoint point;
    for (const std::string& label : info.labels) point.labels.emplace_back(label, "a \"b\" \\ c\nd");
    std::sort(point.labels.begin(), point.labels.end());
    if (info.kind == InstrumentKind::kHistogram) point.counts.assign(info.bounds.size() + 1, 2);
    point.count = 2 * point.counts.size();
    point.sum = point.number = 1.5;
    point.value = 4;
    metric.points.push_back(std::move(point));
    metrics.push_back(std::move(metric));
  }
  MetricSnapshot special;
  special.info.name = "test.special";
  special.info.kind = InstrumentKind::kGauge;
  special.info.description = "what";
  special.points.push_back({.number = std::nan("")});
  special.points.push_back({.labels = {{"k", "inf"}}, .number = std::numeric_limits<double>::infinity()});
  metrics.push_back(std::move(special));
  const std::string snapshot = telemetry::internal::otlp::encode_metrics(metrics, {}, 0, kSecond);
  return render_metrics(format, {{"small", snapshot}, {"large", snapshot}});
}

struct Judged {
  int status = 0;
  std::string said;
};

Judged judge(const std::string& command, const std::string& text) {
  const TempDir directory;
  const auto input = directory / "metrics.txt";
  write_text(input, text);
  Judged out;
  FILE* pipe =
      ::popen((command + " < " + input.string() + " 2>&1").c_str(), "r");  // NOLINT(bugprone-command-processor)
  std::array<char, 4096> buffer{};
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.said.append(buffer.data(), got);
  out.status = WEXITSTATUS(::pclose(pipe));
  return out;
}

TEST(Exposition, PromtoolReadsItThenItWarnsOnlyOfTransformersNames) {
  if (judge("command -v promtool", "").status != 0) GTEST_SKIP() << "install Debian's package prometheus";
  const Judged judged = judge("promtool check metrics", everything(ExpositionFormat::kPrometheusText));
  ASSERT_NE(judged.status, 1) << judged.said;
  for (size_t at = 0; at < judged.said.size();) {
    const size_t end = std::min(judged.said.find('\n', at), judged.said.size());
    const std::string line = judged.said.substr(at, end - at);
    at = end + 1;
    // Names that others' dashboards require. Their units are not base units, or they end like a histogram's parts.
    const bool given = line.find("milliseconds") != std::string::npos || line.find("_percent") != std::string::npos ||
                       line.find("_count ") != std::string::npos;
    EXPECT_TRUE(given) << line;
  }
}

TEST(Exposition, PrometheusClientReadsItThenEverySampleIsThere) {
  constexpr const char* kPython = ".venv/bin/python";
  if (judge(std::string(kPython) + " -c 'import prometheus_client'", "").status != 0)
    GTEST_SKIP() << "make .venv with ./dev setup";
  const std::string parse = std::string(kPython) +
                            " -c 'import sys; from prometheus_client.openmetrics.parser import "
                            "text_string_to_metric_families as parse; "
                            "print(sum(len(f.samples) for f in parse(sys.stdin.read())))'";
  const std::string text = everything(ExpositionFormat::kOpenMetrics);
  const Judged judged = judge(parse, text);
  ASSERT_EQ(judged.status, 0) << judged.said;
  size_t samples = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) samples += text[at] != '#';
  EXPECT_EQ(judged.said, std::to_string(samples) + "\n");
}

}  // namespace
}  // namespace tuft::metrics
