#include "telemetry/metric/prometheus_names.h"

#include <gtest/gtest.h>

namespace tuft::telemetry::internal {
namespace {

std::string series(const std::string& name, const std::string& unit, InstrumentKind kind) {
  InstrumentInfo info;
  info.name = name;
  info.unit = unit;
  info.kind = kind;
  return prometheus_name(info).series();
}

TEST(PrometheusName, UnitsThenAppendedAsWords) {
  EXPECT_EQ(series("http.server.request.duration", "s", InstrumentKind::kHistogram),
            "http_server_request_duration_seconds");
  EXPECT_EQ(series("tuft.lora.memory", "By", InstrumentKind::kObservableGauge), "tuft_lora_memory_bytes");
  EXPECT_EQ(series("hw.temperature", "Cel", InstrumentKind::kObservableGauge), "hw_temperature_celsius");
  EXPECT_EQ(series("disk.speed", "By/s", InstrumentKind::kGauge), "disk_speed_bytes_per_second");
}

TEST(PrometheusName, UnitInTheNameAlreadyThenNotTwice) {
  EXPECT_EQ(series("ttft_milliseconds", "ms", InstrumentKind::kHistogram), "ttft_milliseconds");
  EXPECT_EQ(series("active_requests_count", "requests", InstrumentKind::kGauge), "active_requests_count");
  EXPECT_EQ(series("tuft.resource.cpu.utilization_percent", "%", InstrumentKind::kObservableGauge),
            "tuft_resource_cpu_utilization_percent");
  EXPECT_EQ(series("batch_fill_percentage", "percent", InstrumentKind::kHistogram), "batch_fill_percentage_percent");
}

TEST(PrometheusName, UnitPerTimeThenAlwaysAppended) {
  EXPECT_EQ(series("tuft.training.tokens_per_second", "tokens/s", InstrumentKind::kHistogram),
            "tuft_training_tokens_per_second_per_second");
  EXPECT_EQ(series("tuft.device.peak_flops", "{flop}/s", InstrumentKind::kObservableGauge),
            "tuft_device_peak_flops_per_second");
  EXPECT_EQ(series("speed", "m/m", InstrumentKind::kGauge), "speed_meters_per_minute");
  EXPECT_EQ(series("speed", "By/min", InstrumentKind::kGauge), "speed_bytes_per_min");
  EXPECT_EQ(series("speed", "By/{request}", InstrumentKind::kGauge), "speed_bytes");
}

TEST(PrometheusName, UnitOneThenARatioOnlyWhereItIsAGauge) {
  EXPECT_EQ(series("tuft.worker.busy", "1", InstrumentKind::kObservableGauge), "tuft_worker_busy_ratio");
  EXPECT_EQ(series("decode_prefill_ratio", "1", InstrumentKind::kGauge), "decode_prefill_ratio");
  EXPECT_EQ(series("tuft.training.loss", "1", InstrumentKind::kHistogram), "tuft_training_loss");
  EXPECT_EQ(series("changes", "1", InstrumentKind::kUpDownCounter), "changes");
  EXPECT_EQ(series("done", "1", InstrumentKind::kCounter), "done_total");
}

TEST(PrometheusName, AnnotationsThenDropped) {
  EXPECT_EQ(series("tuft.futures.queued", "{operation}", InstrumentKind::kObservableGauge), "tuft_futures_queued");
  EXPECT_EQ(series("tuft.training.tokens", "{token}", InstrumentKind::kCounter), "tuft_training_tokens_total");
}

TEST(PrometheusName, CounterThenTotalOnceAtTheEnd) {
  EXPECT_EQ(series("process.cpu.time", "s", InstrumentKind::kObservableCounter), "process_cpu_time_seconds_total");
  EXPECT_EQ(series("requests_total", "", InstrumentKind::kCounter), "requests_total");
  EXPECT_EQ(series("total.requests", "By", InstrumentKind::kCounter), "requests_bytes_total");
}

TEST(PrometheusName, ForeignCharactersThenUnderscores) {
  EXPECT_EQ(series("a..b--c", "", InstrumentKind::kGauge), "a_b_c");
  EXPECT_EQ(series("2fast", "", InstrumentKind::kGauge), "_2fast");
  EXPECT_EQ(prometheus_label("http.request.method"), "http_request_method");
  EXPECT_EQ(prometheus_label("0k\xc3\xa4"), "key_0k_");
  EXPECT_EQ(prometheus_label("_x"), "key_x");
  EXPECT_EQ(prometheus_label("__x"), "__x");
}

TEST(PrometheusName, UnitThenNamedOnlyWhereTheFamilyEndsInIt) {
  InstrumentInfo info;
  info.name = "tuft.futures.wait_time";
  info.unit = "s";
  info.kind = InstrumentKind::kHistogram;
  EXPECT_EQ(prometheus_name(info).unit, "seconds");
  info.name = "active_requests_count";
  info.unit = "requests";
  info.kind = InstrumentKind::kGauge;
  EXPECT_EQ(prometheus_name(info).unit, "");
}

}  // namespace
}  // namespace tuft::telemetry::internal
