#include "telemetry_store/store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <utility>

#include "base/file.h"
#include "metrics/telemetry_store.h"
#include "telemetry/log.h"
#include "telemetry_store/feeder.h"
#include "telemetry_store/history.h"
#include "telemetry_store/log_query.h"
#include "telemetry_store/metric_rings.h"
#include "telemetry_store/run_steps.h"
#include "telemetry_store/span_query.h"
#include "telemetry_store/store_thread.h"

namespace tuft::telemetry_store {
namespace {

using internal::DiskFile;
using internal::History;
using internal::HistoryState;

// How the limits are divided.
constexpr int64_t kDiskBytesMin = int64_t{1} << 20;
constexpr int64_t kMemoryBytesMin = int64_t{1} << 20;
constexpr uint64_t kStepsBytesMax = uint64_t{64} << 20;
constexpr uint64_t kMetricBytesMax = uint64_t{32} << 20;
constexpr size_t kUsersThatMayFill = 4;  // the queue, before it refuses others
constexpr Nanos kAgeMin = 60 * kSecond;

StoreOptions sensible(StoreOptions options) {
  options.disk_bytes_max = std::max(options.disk_bytes_max, kDiskBytesMin);
  options.memory_bytes_max = std::max(options.memory_bytes_max, kMemoryBytesMin);
  options.age_max = std::max(options.age_max, kAgeMin);
  return options;
}

// Makes the directory and takes it for this process.
Result<DiskFile> take_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return file_error("create", directory, error.value());
  std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  TUFT_ASSIGN(DiskFile lock, DiskFile::open_to_append(directory / "lock"));
  if (::flock(lock.descriptor(), LOCK_EX | LOCK_NB) != 0)
    return failed_precondition(
        "another server uses the directory of the telemetry store; set telemetry.store.directory");
  return lock;
}

// What the parts get of the limits.
struct Shares {
  explicit Shares(const StoreOptions& options)
      : disk(static_cast<uint64_t>(options.disk_bytes_max)), memory(static_cast<uint64_t>(options.memory_bytes_max)) {}
  const uint64_t disk, memory;
  uint64_t steps_memory() const { return std::min(kStepsBytesMax / 4, memory / 8); }
  uint64_t metric_disk() const { return std::min(kMetricBytesMax, disk / 16); }
  uint64_t metric_memory() const { return memory * 3 / 8; }
  uint64_t history_disk() const { return disk - metric_disk() - std::min(kStepsBytesMax, disk / 16); }
  uint64_t history_memory() const { return memory * 3 / 8; }
  internal::QueueBytesMax queue_memory() const {
    const size_t of_user = request_bytes_max() + internal::kItemBytes;
    return {.of_server = memory / 8, .of_user = of_user, .of_users = kUsersThatMayFill * of_user};
  }
  size_t request_bytes_max() const { return memory / 16; }
};

class TimedQuery {
 public:
  explicit TimedQuery(std::string_view query) : query_(query), start_(system_clock().monotonic()) {}
  ~TimedQuery() {
    metrics::telemetry_store().query_duration.record(to_seconds(system_clock().monotonic() - start_),
                                                     {{"query", query_}});
  }
  TimedQuery(const TimedQuery&) = delete;
  TimedQuery& operator=(const TimedQuery&) = delete;

 private:
  const std::string_view query_;
  const Nanos start_;
};

class EmbeddedStore final : public Store {
 public:
  EmbeddedStore(StoreOptions options, DiskFile lock, std::string problem, const Clock& clock)
      : options_(std::move(options)),
        lock_(std::move(lock)),
        open_problem_(std::move(problem)),
        clock_(clock),
        history_(
            {options_.directory, Shares(options_).history_disk(), Shares(options_).history_memory(), options_.age_max}),
        metrics_(options_.directory, Shares(options_).metric_disk(), Shares(options_).metric_memory(),
                 options_.age_max),
        steps_(options_.directory, Shares(options_).steps_memory()),
        feeder_(history_, options_.owner_of),
        loaded_(load()),
        thread_(std::make_unique<internal::StoreThread>(
            Shares(options_).queue_memory(),
            internal::StoreThread::Calls{[this](internal::Item item) { work(std::move(item)); },
                                         [this] { maintain(); }})) {}

  ~EmbeddedStore() override {
    thread_.reset();
    history_.close(clock_.wall());
  }

  bool add(RecordType type, std::string request, const Source& source) override {
    return push(internal::Records{type, std::move(request), source}, source);
  }
  bool add_metrics(std::string snapshot, const Source& source) override {
    return push(internal::Snapshot{std::move(snapshot), source}, source);
  }
  int64_t request_bytes_max() const override { return static_cast<int64_t>(Shares(options_).request_bytes_max()); }
  void add_step(RunStep step) override { push(std::move(step), {}); }
  bool settle(Nanos budget) override { return thread_->settle(budget); }

  Result<TracePage> traces(const Viewer& viewer, const Filter& filter, const PageOf& page) const override {
    const TimedQuery timed("traces");
    return internal::find_traces(history_.segments(), viewer, filter, page, clock_);
  }
  Result<DurationHistogram> durations(const Viewer& viewer, const Filter& filter) const override {
    const TimedQuery timed("durations");
    return internal::find_durations(history_.segments(), viewer, filter, clock_);
  }
  Result<SpanSeries> span_series(const Viewer& viewer, const Filter& filter, SpanFunction function, std::string_view by,
                                 Nanos step) const override {
    const TimedQuery timed("span_series");
    return internal::find_span_series(history_.segments(), viewer, filter, function, by, step, clock_);
  }
  Result<Trace> trace(const Viewer& viewer, std::string_view trace_id, size_t spans_max) const override {
    const TimedQuery timed("trace");
    return internal::read_trace(history_.segments(), viewer, trace_id, spans_max, clock_);
  }
  Result<LogPage> logs(const Viewer& viewer, const LogQuery& query) const override {
    const TimedQuery timed("logs");
    return internal::find_logs(history_.segments(), viewer, query, clock_);
  }
  Rejections take_refused_points(const std::string& owner) override { return metrics_.take_refused(owner); }
  std::vector<MetricInfo> metrics(const Viewer& viewer) const override {
    const TimedQuery timed("metrics");
    return metrics_.metrics(viewer);
  }
  Result<MetricAnswer> metric(const Viewer& viewer, const MetricQuery& query) const override {
    const TimedQuery timed("metric");
    return metrics_.query(viewer, query, clock_.wall());
  }
  std::vector<MetricExemplar> exemplars(const Viewer& viewer, const MetricQuery& query) const override {
    const TimedQuery timed("exemplars");
    return metrics_.exemplars(viewer, query, clock_.wall());
  }
  std::vector<RunStep> steps(const Viewer& viewer, std::string_view run, int64_t after, size_t points) const override {
    const TimedQuery timed("steps");
    return steps_.steps(viewer, run, after, points);
  }

  StoreState state() const override {
    const HistoryState history = history_.state();
    StoreState state;
    state.on_disk = !options_.directory.empty() && history.problem.empty();
    state.problem = open_problem_.empty() ? history.problem : open_problem_;
    state.disk_bytes = history.disk_bytes + metrics_.disk_bytes() + steps_.disk_bytes();
    state.disk_bytes_max = options_.directory.empty() ? 0 : static_cast<uint64_t>(options_.disk_bytes_max);
    state.memory_bytes = history.memory_bytes + metrics_.memory_bytes() + steps_.memory_bytes();
    state.spans = history.spans;
    state.logs = history.logs;
    state.series = metrics_.series();
    state.steps = steps_.count();
    state.oldest = history.oldest;
    state.dropped_records = dropped_.load(std::memory_order_relaxed) + history.dropped;
    return state;
  }

 private:
  bool load() {
    const Nanos now = clock_.wall();
    history_.load(now);
    metrics_.load(now);
    steps_.load();
    return true;
  }

  bool push(internal::Item item, const Source& source) {
    const bool is_queued = thread_->push(std::move(item));
    if (!is_queued && source.owner.empty()) drop("queue_full", 1);
    return is_queued;
  }

  void drop(std::string_view reason, size_t count) {
    if (count == 0) return;
    dropped_.fetch_add(count, std::memory_order_relaxed);
    metrics::telemetry_store().dropped.add(static_cast<int64_t>(count), {{"reason", reason}});
  }

  void work(internal::Item item) {
    const Nanos now = clock_.wall();
    if (auto* records = std::get_if<internal::Records>(&item)) {
      const bool spans = records->type == RecordType::kSpans;
      const internal::FedCount fed = feeder_.feed(records->type, records->request, records->source, now);
      const metrics::TelemetryStoreMetrics& health = metrics::telemetry_store();
      const std::string_view signal = spans ? "traces" : "logs";
      health.records.add(static_cast<int64_t>(fed.records), {{"signal", signal}});
      health.bytes.add(static_cast<int64_t>(records->request.size()), {{"signal", signal}});
      drop("malformed", fed.malformed);
    } else if (auto* snapshot = std::get_if<internal::Snapshot>(&item)) {
      drop("malformed", metrics_.add(snapshot->request, snapshot->source, now));
    } else {
      steps_.add(std::get<RunStep>(std::move(item)));
    }
  }

  void maintain() {
    const Nanos now = clock_.wall();
    history_.flush(now);
    history_.maintain(now);
    // A failure of these files has the same reason as one of the segments, which says it.
    (void)metrics_.maintain(now).ok();
    (void)steps_.flush().ok();
    const StoreState state = this->state();
    metrics::telemetry_store().disk_bytes.set(static_cast<double>(state.disk_bytes));
    metrics::telemetry_store().memory_bytes.set(static_cast<double>(state.memory_bytes));
  }

  const StoreOptions options_;
  const DiskFile lock_;
  const std::string open_problem_;
  const Clock& clock_;
  std::atomic<uint64_t> dropped_ = 0;
  History history_;
  internal::MetricRings metrics_;
  internal::RunSteps steps_;
  internal::Feeder feeder_;
  const bool loaded_;
  std::unique_ptr<internal::StoreThread> thread_;
};

}  // namespace

std::unique_ptr<Store> Store::open(StoreOptions given, const Clock& clock) {
  StoreOptions options = sensible(std::move(given));
  DiskFile lock;
  std::string problem;
  if (!options.directory.empty()) {
    auto taken = take_directory(options.directory);
    if (taken.ok()) {
      lock = std::move(*taken);
    } else {
      problem = taken.error().message;
      options.directory.clear();
      telemetry::log_error("telemetry_store.no_directory",
                           "the telemetry store cannot use its directory and keeps recent records in memory",
                           {{"error.type", error_code_name(taken.error().code)}, {"tuft.reason", problem}});
    }
  }
  return std::make_unique<EmbeddedStore>(std::move(options), std::move(lock), std::move(problem), clock);
}

}  // namespace tuft::telemetry_store
