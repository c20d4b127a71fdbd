#include "telemetry/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <pthread.h>
#include <thread>
#include <unistd.h>

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/base_sink.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/context.h"
#include "telemetry/instruments/health.h"
#include "telemetry/log/log_limit.h"
#include "telemetry/log/log_line.h"
#include "telemetry/record/recorder.h"
#include "telemetry/record/recording.h"

namespace tuft::telemetry {
namespace {

constexpr size_t kLinesQueuedMax = 8192;
constexpr auto kFlushTimeout = std::chrono::seconds(2);
constexpr Name kSuppressed = "telemetry.log_suppressed";

void write_line(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    // There is no way to report that stderr is gone.
    if (written <= 0) return;
    line.remove_prefix(static_cast<size_t>(written));
  }
}

// Only spdlog's thread calls it, hence the null mutex.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  uint64_t written() const { return written_.load(std::memory_order_acquire); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    write_line({message.payload.data(), message.payload.size()});
    written_.fetch_add(1, std::memory_order_release);
  }
  void flush_() override {}

 private:
  std::atomic<uint64_t> written_{0};
};

// Leaked: threads log until the process ends.
struct AsyncLog {
  std::shared_ptr<StderrSink> sink = std::make_shared<StderrSink>();
  // A full queue drops its oldest line, so that a slow terminal delays no thread.
  std::shared_ptr<spdlog::details::thread_pool> pool =
      std::make_shared<spdlog::details::thread_pool>(kLinesQueuedMax, 1);
  std::shared_ptr<spdlog::async_logger> logger =
      std::make_shared<spdlog::async_logger>("tuft", sink, pool, spdlog::async_overflow_policy::overrun_oldest);
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> drops_counted{0};
};

std::atomic<AsyncLog*> g_log{nullptr};
std::atomic<const LogOptions*> g_options{nullptr};  // leaked
std::atomic<Severity> g_level{Severity::kInfo};
std::atomic<Severity> g_exported_level{Severity::kDebug};
// The lowest level of the library's own lines; kOwnAsAll: that of all lines; above kError: none is written.
constexpr int kOwnAsAll = -1;
std::atomic<int> g_own_level{kOwnAsAll};
constinit internal::LogLimit g_limit;

void count_dropped_lines(AsyncLog& async) {
  const uint64_t dropped = async.pool->overrun_counter();
  const uint64_t counted = async.drops_counted.exchange(dropped);
  if (dropped > counted)
    internal::health_metrics().dropped.add(static_cast<int64_t>(dropped - counted),
                                           {{"signal", "log_lines"}, {"reason", "queue_full"}});
}

void write_to_stderr(internal::LogLine line) {
  thread_local std::string text;
  text.clear();
  const LogOptions* options = g_options.load(std::memory_order_acquire);
  line.process = options != nullptr ? std::string_view(options->process) : "tuft";
  if (options != nullptr && options->format == LogFormat::kJson) {
    internal::append_json(text, line);
  } else {
    internal::append_text(text, line);
  }
  text += '\n';
  AsyncLog* async = g_log.load(std::memory_order_acquire);
  if (async == nullptr) return write_line(text);
  async->submitted.fetch_add(1, std::memory_order_relaxed);
  async->logger->log(spdlog::level::info, spdlog::string_view_t(text.data(), text.size()));
}

void write_to_ring(const internal::LogLine& line, Name event) {
  internal::LogHead head{};
  head.time = line.time;
  head.context = line.context;
  head.event = event;
  head.file = line.where.file_name();
  head.function = line.where.function_name();
  head.line = line.where.line();
  head.severity = line.severity;
  internal::write_log(head, line.message, line.attributes);
}

struct Ways {
  bool line = false;    // to stderr
  bool record = false;  // to the exporter
};

// The library says by itself how its exports go. Its lines at DEBUG are not exported, because the export of one would
// cause the next.
Ways ways_of_own(Severity severity) {
  const int own = g_own_level.load(std::memory_order_relaxed);
  const int rank = static_cast<int>(severity);
  const bool as_all = own == kOwnAsAll;
  return {as_all ? severity >= g_level.load(std::memory_order_relaxed) : rank >= own,
          severity > Severity::kDebug && severity >= g_exported_level.load(std::memory_order_relaxed) &&
              (as_all || rank >= own)};
}

// A record that is not shown as a line follows the sampling of its trace, as the spans do.
Ways ways_of(Severity severity, Name event, const SpanContext& context) {
  if (event.view().starts_with("telemetry.")) return ways_of_own(severity);
  const bool line = severity >= g_level.load(std::memory_order_relaxed);
  return {line, severity >= g_exported_level.load(std::memory_order_relaxed) &&
                    (line || !context.valid() || context.sampled())};
}

void write(const internal::LogLine& line, Name event, const Ways& ways) {
  if (ways.line) write_to_stderr(line);
  if (ways.record && internal::logs_recording()) write_to_ring(line, event);
}

}  // namespace

Result<Severity> parse_severity(std::string_view text) {
  if (text == "debug") return Severity::kDebug;
  if (text == "info") return Severity::kInfo;
  if (text == "warning" || text == "warn") return Severity::kWarning;
  if (text == "error") return Severity::kError;
  return invalid_argument("unknown log level '" + std::string(text) + "': use debug, info, warning or error");
}

void init_logging(const LogOptions& options) {
  g_level = options.level;
  if (g_log.load() != nullptr) return;
  g_options.store(new LogOptions(options), std::memory_order_release);
  // The parent owns the logging thread, so the child writes its lines itself until it starts its own.
  [[maybe_unused]] static const int watching = ::pthread_atfork(nullptr, nullptr, [] { g_log = nullptr; });
  try {
    auto async = std::make_unique<AsyncLog>();
    async->logger->set_level(spdlog::level::trace);
    g_log.store(async.release(), std::memory_order_release);
  } catch (const std::exception& problem) {
    // The thread could not start, so lines are written synchronously: slower, but none is lost.
    log_warning("log.synchronous", "the logging thread could not be started", {{"reason", problem.what()}});
  }
}

void flush_logging() {
  AsyncLog* async = g_log.load(std::memory_order_acquire);
  if (async == nullptr) return;
  count_dropped_lines(*async);
  const uint64_t wanted = async->submitted.load();
  const auto deadline = std::chrono::steady_clock::now() + kFlushTimeout;
  // Lines that were pushed out of the full queue never reach the sink.
  while (async->sink->written() + async->pool->overrun_counter() < wanted &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void log(Severity severity, Name event, std::string_view message, Attributes attributes, std::source_location where) {
  // The first test keeps a record that goes nowhere as cheap as possible.
  if (severity < g_level.load(std::memory_order_relaxed) && !internal::logs_recording() &&
      g_own_level.load(std::memory_order_relaxed) == kOwnAsAll)
    return;
  const SpanContext context = current_context();
  Ways ways = ways_of(severity, event, context);
  if (!ways.line && !(ways.record && internal::logs_recording())) return;
  // What goes to the exporter and belongs to a span is as frequent as spans, and its queue is bounded like theirs. So
  // the limit, which is one for all users, takes lines away from a trace, and no records.
  const bool limited = ways.line || !context.valid();
  const internal::LogLimit::Verdict verdict =
      limited ? g_limit.ask(event.view().data(), system_clock().monotonic()) : internal::LogLimit::Verdict{};
  if (!verdict.pass) {
    count_suppressed_log(event);
    if (!ways.record || !context.valid()) return;
    ways.line = false;
  }
  const internal::LogLine line{.time = system_clock().wall(),
                               .severity = severity,
                               .process = {},
                               .event = event.view(),
                               .message = message,
                               .attributes = attributes,
                               .context = context,
                               .where = where};
  write(line, event, ways);
  if (verdict.suppressed == 0) return;
  const Attribute about[] = {{"tuft.event", event.view()}, {"tuft.count", static_cast<int64_t>(verdict.suppressed)}};
  internal::LogLine note = line;
  note.severity = Severity::kWarning;
  note.event = kSuppressed.view();
  note.message = "records of this event were suppressed by the rate limit";
  note.attributes = std::span<const Attribute>(about);
  write(note, kSuppressed, ways);
}

void count_suppressed_log(Name event) {
  internal::health_metrics().log_suppressed.add(1, {{"event", event.view()}});
}

void internal::set_exported_log_level(Severity level) {
  g_exported_level = level;
}

void internal::set_own_log_level(bool said, std::optional<Severity> level) {
  g_own_level = !said ? kOwnAsAll : level ? static_cast<int>(*level) : static_cast<int>(Severity::kError) + 1;
}

void internal::count_dropped_log_lines() {
  if (AsyncLog* async = g_log.load(std::memory_order_acquire)) count_dropped_lines(*async);
}

}  // namespace tuft::telemetry
