// Compares docs/telemetry.md with the metrics of the code, and tests/telemetry/golden_exposition_names.txt with their
// names in Prometheus. TUFT_UPDATE_GOLDEN=1 writes both files.
#include "metrics/catalogue.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "metrics/continuous_batching.h"
#include "metrics/futures.h"
#include "metrics/training.h"
#include "telemetry/metric/prometheus_names.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::metrics {
namespace {

using telemetry::InstrumentInfo;
using telemetry::InstrumentKind;

constexpr const char* kPage = "docs/telemetry.md";
constexpr const char* kNames = "tests/telemetry/golden_exposition_names.txt";
constexpr const char* kCure =
    "run TUFT_UPDATE_GOLDEN=1 build/release/tests/tuft_metrics_test --gtest_filter='Catalogue.*'";
const std::string kBegin = "<!-- instruments: begin -->\n";
const std::string kEnd = "<!-- instruments: end -->";

struct Section {
  std::string title;
  std::vector<std::string> prefixes;
};

// An instrument goes into the first section that fits.
const std::vector<Section>& sections() {
  static const std::vector<Section> all{
      {"HTTP", {"http.", "tuft.http.", "tuft.auth.", "tuft.client."}},
      {"Sessions, operations, tenants", {"tuft.sessions.", "tuft.requests.", "tuft.tenant."}},
      {"Futures", {"tuft.futures.", "tuft.sequence_guard."}},
      {"Training and checkpoints", {"tuft.training.", "tuft.checkpoint."}},
      {"Sampling", {"tuft.sampling.", "tuft.openai.", "gen_ai."}},
      {"Engine", {"tuft.scheduler.", "tuft.kv_cache.", "tuft.prefix_cache.", "tuft.lora.", "tuft.device."}},
      {"Workers", {"tuft.worker"}},
      {"Persistence", {"tuft.redis.", "db.", "tuft.store.", "tuft.restore."}},
      {"Machine and process", {"tuft.resource.", "system.", "process.", "hw.", "tuft.build."}},
      {"Telemetry's own health", {"tuft.telemetry.", "otel."}},
      {"Continuous batching, under the names of Transformers", {""}},
  };
  return all;
}

const Section& section_of(const std::string& name) {
  for (const Section& section : sections()) {
    for (const std::string& prefix : section.prefixes) {
      if (name.starts_with(prefix)) return section;
    }
  }
  return sections().back();
}

std::vector<InstrumentInfo> product_instruments() {
  register_all();
  std::vector<InstrumentInfo> out;
  for (const InstrumentInfo& info : telemetry::instrument_catalogue()) {
    // Other tests of this binary register instruments of their own.
    if (!info.name.starts_with("test.")) out.push_back(info);
  }
  return out;
}

std::string_view recorded_by_text(RecordedBy by) {
  switch (by) {
    case RecordedBy::kServer:
      return "server";
    case RecordedBy::kWorker:
      return "worker";
    case RecordedBy::kBoth:
      break;
  }
  return "both";
}

std::string kind_text(const InstrumentInfo& info) {
  std::ostringstream out;
  out << telemetry::instrument_kind_name(info.kind);
  if (!info.bounds.empty())
    out << ", " << info.bounds.size() << " bounds " << info.bounds.front() << " .. " << info.bounds.back();
  return out.str();
}

std::string labels_text(const InstrumentInfo& info) {
  std::string out;
  for (const std::string& label : info.labels) out += (out.empty() ? "`" : " `") + label + "`";
  return out;
}

std::string catalogue_tables() {
  std::map<std::string, std::string> rows;
  for (const InstrumentInfo& info : product_instruments()) {
    rows[section_of(info.name).title] +=
        "| `" + info.name + "`<br>`" + telemetry::internal::prometheus_name(info).series() + "` | " + kind_text(info) +
        " | " + info.unit + " | " + labels_text(info) + " | " + std::string(recorded_by_text(info.recorded_by)) +
        " | " + info.description + " |\n";
  }
  std::string out;
  for (const Section& section : sections())
    out += "\n#### " + section.title + "\n\n| name, and in Prometheus | kind | unit | labels | by | what |\n" +
           "|---|---|---|---|---|---|\n" + rows[section.title];
  return out + "\n";
}

std::string exposition_names() {
  std::string out;
  for (const InstrumentInfo& info : product_instruments()) {
    const telemetry::internal::PrometheusName name = telemetry::internal::prometheus_name(info);
    out += info.name + " " + name.type + " " + name.series();
    for (const std::string& label : info.labels) out += " " + telemetry::internal::prometheus_label(label);
    out += "\n";
  }
  return out;
}

std::string read_file(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool update_wanted() {
  return std::getenv("TUFT_UPDATE_GOLDEN") != nullptr;
}

TEST(Catalogue, PageThenItListsEveryInstrument) {
  std::string page = read_file(kPage);
  const size_t begin = page.find(kBegin);
  const size_t end = page.find(kEnd);
  ASSERT_NE(begin, std::string::npos) << kPage << " is missing, or has lost its marks (run in the root of the tree)";
  ASSERT_NE(end, std::string::npos);
  const size_t start = begin + kBegin.size();
  if (update_wanted()) {
    page.replace(start, end - start, catalogue_tables());
    std::ofstream(kPage) << page;
    return;
  }
  EXPECT_EQ(page.substr(start, end - start), catalogue_tables()) << kCure;
}

TEST(Catalogue, ExpositionThenTheNamesThatDashboardsUse) {
  if (update_wanted()) {
    std::ofstream(kNames) << exposition_names();
    return;
  }
  EXPECT_EQ(read_file(kNames), exposition_names()) << kCure;
}

TEST(Catalogue, TransformersMetricsThenAsItsDashboardAsksForThem) {
  std::set<std::string> names;
  for (const InstrumentInfo& info : product_instruments())
    names.insert(telemetry::internal::prometheus_name(info).series());
  for (const char* name :
       {"ttft_milliseconds", "active_requests_count", "waiting_requests_count", "request_latency_milliseconds",
        "decode_prefill_ratio", "prefill_tokens_processed_total", "decode_tokens_processed_total",
        "batch_fill_percentage_percent", "kv_cache_free_memory_bytes", "kv_cache_memory_bytes"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Catalogue, ExpositionThenNoTwoInstrumentsShareAName) {
  std::set<std::string> names;
  for (const InstrumentInfo& info : product_instruments())
    EXPECT_TRUE(names.insert(telemetry::internal::prometheus_name(info).family).second) << info.name;
}

TEST(Histogram, ProductBoundsThenAsDocumented) {
  telemetry::WithCollector collector;
  futures().wait_time.record(0.0002, {{"operation_type", "sample"}});
  training().checkpoint_size_bytes.record(70'000, {{"checkpoint_type", "training"}});
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.receiver.metric("tuft.futures.wait_time")->points.at(0).bounds, bounds_wait());
  const auto bytes = collector.receiver.metric("tuft.training.checkpoint.size_bytes");
  EXPECT_EQ(bytes->points.at(0).bounds.front(), 65536);
  EXPECT_EQ(bytes->points.at(0).bounds.back(), 64.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(bytes->points.at(0).bucket_counts.at(1), 1u);
}

TEST(Histogram, TransformersBoundsThenItsOwnAndOnThePage) {
  const std::map<std::string, std::vector<double>> wanted{
      {"ttft_milliseconds", {10, 25, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 2000, 5000, 10000}},
      {"request_latency_milliseconds", {50, 100, 250, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000}},
      {"batch_fill_percentage", {5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 100}}};
  telemetry::WithCollector collector;
  continuous_batching().ttft_milliseconds.record(1);
  continuous_batching().request_latency_milliseconds.record(1);
  continuous_batching().batch_fill_percentage.record(1);
  ASSERT_TRUE(collector.flush());
  const std::string page = read_file(kPage);
  for (const auto& [name, bounds] : wanted) {
    EXPECT_EQ(collector.receiver.metric(name)->points.at(0).bounds, bounds) << name;
    std::ostringstream row;
    for (const double bound : bounds) row << (row.tellp() == 0 ? "" : ", ") << bound;
    EXPECT_NE(page.find("| `" + name + "` | " + row.str() + " |\n"), std::string::npos) << name;
  }
}

TEST(Catalogue, TuftsMetricsThenAllUnderTheirNames) {
  std::set<std::string> names;
  for (const InstrumentInfo& info : product_instruments()) names.insert(info.name);
  for (const char* name : {"tuft.training.models.active",
                           "tuft.training.tokens_per_second",
                           "tuft.training.checkpoints.saved",
                           "tuft.training.checkpoint.size_bytes",
                           "tuft.sampling.sessions.active",
                           "tuft.sampling.requests",
                           "tuft.sampling.duration",
                           "tuft.sampling.tokens_per_second",
                           "tuft.sampling.output_tokens",
                           "tuft.futures.queue_length",
                           "tuft.futures.created",
                           "tuft.futures.completed",
                           "tuft.futures.wait_time",
                           "tuft.futures.execution_time",
                           "tuft.resource.cpu.utilization_percent",
                           "tuft.resource.memory.used_bytes",
                           "tuft.resource.memory.total_bytes",
                           "tuft.resource.memory.utilization_percent",
                           "tuft.resource.gpu.utilization_percent",
                           "tuft.resource.gpu.memory_used_bytes",
                           "tuft.resource.gpu.memory_total_bytes",
                           "tuft.resource.process.memory_used_bytes"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Catalogue, HistogramsThenTheirBoundsAscend) {
  for (const InstrumentInfo& info : product_instruments()) {
    if (info.kind != InstrumentKind::kHistogram) continue;
    EXPECT_FALSE(info.bounds.empty()) << info.name;
    EXPECT_TRUE(std::is_sorted(info.bounds.begin(), info.bounds.end())) << info.name;
    EXPECT_EQ(std::adjacent_find(info.bounds.begin(), info.bounds.end()), info.bounds.end()) << info.name;
  }
}

}  // namespace
}  // namespace tuft::metrics
