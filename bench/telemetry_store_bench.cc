// tuft_telemetry_store_bench segments|full|sqlite DIRECTORY: keeps spans and log records as the server would, one line
// of JSON in and one out. full: segments with so small a limit of the disk that old ones leave all the time. {"op":
// "ingest", "spans": 1000000} -> {"seconds": .., "cpu_us_per_span": .., "bytes_per_span":
// ..}; {"op": "find", "key": "session", "rounds": 50} -> {"p50_ms": .., "p95_ms": .., "cpu_ms": ..,
// "results": ..}; {"op": "trace"},
// {"op": "logs", "logs": 100000}, {"op": "text"} alike.
#include "telemetry_store_bench.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "telemetry_store/store.h"
#include "telemetry_store/testing/otlp_builder.h"

namespace tuft::bench {
namespace {

using namespace telemetry_store;
using nlohmann::json;

constexpr size_t kSpansInRequest = 500;
constexpr size_t kSpansOfTrace = 5;
constexpr size_t kSpansOfLargeTrace = 5000;
constexpr uint64_t kLargeTrace = uint64_t{1} << 40;
constexpr size_t kUsers = 20;
constexpr size_t kSessions = 100;

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class SegmentSubject final : public TelemetrySubject {
 public:
  SegmentSubject(const std::string& directory, int64_t disk_bytes_max)
      : store_(Store::open({.directory = directory, .disk_bytes_max = disk_bytes_max}, system_clock())) {}

  void add_spans(std::string request) override { store_->add(RecordType::kSpans, std::move(request), {}); }
  void add_logs(std::string request) override { store_->add(RecordType::kLogs, std::move(request), {}); }
  void settle() override { store_->settle(60 * kSecond); }
  size_t find(const Asked& asked) override {
    Filter filter;
    if (asked.key == "session") filter.session = asked.value;
    if (asked.key == "run") filter.run = asked.value;
    if (asked.key == "user") filter.user = asked.value;
    if (asked.key == "request") filter.request = asked.value;
    if (asked.key == "name") filter.name = asked.value;
    if (asked.key == "failed") filter.failed = true;
    if (asked.key == "duration") filter.duration_min = std::stoll(asked.value);
    const auto page = store_->traces({.all = true}, filter, {.limit = 100});
    return page.ok() ? page->traces.size() : 0;
  }
  size_t open_trace(const std::string& trace_id) override {
    const auto trace = store_->trace({.all = true}, trace_id, 100'000);
    return trace.ok() ? trace->spans.size() : 0;
  }
  size_t search_logs(const std::string& text) override {
    const auto page = store_->logs({.all = true}, {.filter = {.text = text}});
    return page.ok() ? page->logs.size() : 0;
  }
  size_t disk_bytes() override { return store_->state().disk_bytes; }

 private:
  const std::unique_ptr<Store> store_;
};

std::string numbered(std::string_view word, uint64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(word) + std::string(12 - digits.size(), '0') + digits;
}

// A request to the server: its HTTP span, the operation, its stages.
BuiltSpan make_span(uint64_t i, Nanos start) {
  constexpr const char* kNames[] = {"POST /api/v1/forward_backward", "future_store.execute_operation",
                                    "training_controller.run_forward_backward", "training_backend.forward_backward",
                                    "engine.pass"};
  const uint64_t trace = i / kSpansOfTrace + 1;
  const uint64_t part = i % kSpansOfTrace;
  const uint64_t session = trace % kSessions;
  BuiltSpan span{.trace = trace, .span = i + 1, .parent = part == 0 ? 0 : i, .name = kNames[part]};
  span.kind = part == 0 || part == 3 ? 2 : 1;
  span.start = start;
  span.duration = static_cast<Nanos>(trace * 2654435761 % 1'000'000'000);
  span.failed = trace % 50 == 0;
  span.attributes = {{"tuft.session_id", numbered("session-0d7c-4e1b-9d5f-", session)},
                     {"tuft.training_run_id", numbered("run-7f1e-43aa-8f0c-1234-", session * 2 + trace % 2)},
                     {"tuft.request_id", numbered("request-2b4c-4c1f-b1aa-", trace)},
                     {"tuft.operation_type", "forward_backward"},
                     {"tuft.base_model", "Qwen/Qwen3-0.6B"},
                     {"tuft.user", "user-" + std::to_string(session % kUsers)},
                     {"http.request.method", "POST"},
                     {"http.route", "/api/v1/forward_backward"},
                     {"http.response.status_code", "200"},
                     {"server.address", "127.0.0.1"},
                     {"client.address", "127.0.0.1"},
                     {"network.protocol.version", "1.1"}};
  return span;
}

json ingest(TelemetrySubject& subject, size_t count) {
  const Nanos begin = system_clock().wall() - static_cast<Nanos>(count) * 100 * kMicrosecond;
  double cpu = 0;
  double seconds = 0;
  for (uint64_t next = 0; next < count;) {
    // Made before the time is taken.
    std::vector<std::string> requests;
    for (size_t r = 0; r < 10 && next < count; ++r) {
      std::vector<BuiltSpan> spans;
      for (size_t i = 0; i < kSpansInRequest; ++i, ++next)
        spans.push_back(make_span(next, begin + static_cast<Nanos>(next) * 100 * kMicrosecond));
      requests.push_back(build_spans(spans));
    }
    const double cpu_before = cpu_seconds();
    const Nanos before = system_clock().monotonic();
    for (std::string& request : requests) subject.add_spans(std::move(request));
    subject.settle();
    seconds += to_seconds(system_clock().monotonic() - before);
    cpu += cpu_seconds() - cpu_before;
  }
  const size_t bytes = subject.disk_bytes();
  std::vector<BuiltSpan> spans;
  for (uint64_t i = 0; i < kSpansOfLargeTrace; ++i) {
    BuiltSpan span = make_span(i, system_clock().wall() - kSecond + static_cast<Nanos>(i));
    span.trace = kLargeTrace;
    span.parent = i;
    spans.push_back(std::move(span));
  }
  subject.add_spans(build_spans(spans));
  subject.settle();
  const auto spans_made = static_cast<double>(count);
  return {{"seconds", seconds},
          {"cpu_us_per_span", 1e6 * cpu / spans_made},
          {"bytes_per_span", static_cast<double>(bytes) / spans_made}};
}

json add_logs(TelemetrySubject& subject, size_t count) {
  const Nanos begin = system_clock().wall() - static_cast<Nanos>(count) * kMillisecond;
  const double cpu_before = cpu_seconds();
  for (uint64_t next = 0; next < count;) {
    std::vector<BuiltLog> logs;
    for (size_t i = 0; i < 1000 && next < count; ++i, ++next) {
      BuiltLog log{.time = begin + static_cast<Nanos>(next) * kMillisecond, .event = "operation.completed"};
      log.body = "operation " + std::to_string(next) + " completed in " + std::to_string(next % 1000) + " ms";
      if (next % 5000 == 0) log.body += " after a checkpoint was evicted";
      log.trace = next + 1;
      log.attributes = {{"tuft.session_id", numbered("session-0d7c-4e1b-9d5f-", next % kSessions)},
                        {"tuft.user", "user-" + std::to_string(next % kUsers)}};
      logs.push_back(std::move(log));
    }
    subject.add_logs(build_logs(logs));
    subject.settle();
  }
  return {{"cpu_us_per_log", 1e6 * (cpu_seconds() - cpu_before) / static_cast<double>(count)}};
}

json timed(size_t rounds, const std::function<size_t(size_t)>& query) {
  std::vector<double> milliseconds;
  size_t results = 0;
  const double cpu_before = cpu_seconds();
  for (size_t round = 0; round < rounds; ++round) {
    const Nanos before = system_clock().monotonic();
    results = query(round);
    milliseconds.push_back(1e3 * to_seconds(system_clock().monotonic() - before));
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return {{"p50_ms", milliseconds[rounds / 2]},
          {"p95_ms", milliseconds[rounds * 95 / 100]},
          {"cpu_ms", 1e3 * (cpu_seconds() - cpu_before) / static_cast<double>(rounds)},
          {"results", results}};
}

Asked asked_for(const std::string& key, size_t round) {
  const uint64_t some = round * 7919;
  if (key == "session") return {key, numbered("session-0d7c-4e1b-9d5f-", some % kSessions)};
  if (key == "run") return {key, numbered("run-7f1e-43aa-8f0c-1234-", some % (2 * kSessions))};
  if (key == "request") return {key, numbered("request-2b4c-4c1f-b1aa-", some % 20'000 + 1)};
  if (key == "user") return {key, "user-" + std::to_string(some % kUsers)};
  if (key == "name") return {key, some % 2 == 0 ? "engine.pass" : "future_store.execute_operation"};
  // One request of a thousand is so slow.
  if (key == "duration") return {key, "999000000"};
  return {key, ""};
}

json answer(TelemetrySubject& subject, const json& asked) {
  const std::string operation = asked.at("op");
  const size_t rounds = asked.value("rounds", 50);
  if (operation == "ingest") return ingest(subject, asked.at("spans"));
  if (operation == "logs") return add_logs(subject, asked.at("logs"));
  if (operation == "find") {
    const std::string key = asked.at("key");
    return timed(rounds, [&](size_t round) { return subject.find(asked_for(key, round)); });
  }
  if (operation == "trace")
    return timed(rounds, [&](size_t) { return subject.open_trace(built_trace_id(kLargeTrace)); });
  if (operation == "text") return timed(rounds, [&](size_t) { return subject.search_logs("evicted"); });
  return {{"error", "no operation " + operation}};
}

}  // namespace

std::unique_ptr<TelemetrySubject> open_segments(const std::string& directory, bool is_full) {
  return std::make_unique<SegmentSubject>(directory, int64_t{is_full ? 128 : 8192} << 20);
}

}  // namespace tuft::bench

int main(int argc, char** argv) {
  const std::string kind = argc == 3 ? argv[1] : "";
  if (kind != "segments" && kind != "full" && kind != "sqlite") {
    std::cerr << "usage: tuft_telemetry_store_bench segments|full|sqlite DIRECTORY\n";
    return 2;
  }
  std::filesystem::remove_all(argv[2]);
  const auto subject =
      kind == "sqlite" ? tuft::bench::open_sqlite(argv[2]) : tuft::bench::open_segments(argv[2], kind == "full");
  for (std::string line; std::getline(std::cin, line);)
    std::cout << tuft::bench::answer(*subject, nlohmann::json::parse(line)).dump() << std::endl;
  return 0;
}
