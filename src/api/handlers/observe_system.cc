// The server itself, and all that a report of a problem needs, in one file.
#include <algorithm>
#include <memory>
#include <utility>

#include "api/handlers/handlers.h"
#include "api/handlers/observe_query.h"
#include "api/handlers/tar_gz.h"
#include "api/json/observe_json.h"
#include "api/routing/metrics_page.h"
#include "api/routing/query.h"
#include "control/observe/observer.h"
#include "control/queues/work_pool.h"

namespace tuft::api {
namespace {

constexpr Nanos kSystemTimeout = 3 * kSecond;  // over rpc::kCollectTimeout
constexpr Nanos kBundleTimeout = 45 * kSecond;
constexpr size_t kBundleLogs = 10'000, kLogsOfPage = 1'000;
constexpr size_t kBundleTraces = 10;  // of the slowest, and of those that failed
constexpr size_t kTracesLookedAt = 500;
constexpr size_t kTraceBytesMax = 4 << 20, kLogBytesMax = 32 << 20;
constexpr int64_t kBundleCost = 8 << 20;
constexpr int64_t kBundleBytes = 64 << 20;
constexpr Nanos kBundleRange = 24 * 3600 * kSecond;

// Passes the page of the metrics of the server and its workers to `done`, or nothing if there is none.
void with_metrics(control::ControlPlane& control, std::shared_ptr<MetricsPage> page,
                  std::function<void(std::string)> done) {
  control.collect_worker_metrics(
      [page = std::move(page), done = std::move(done)](std::vector<telemetry::WorkerMetrics> workers) {
        if (!page->render(telemetry::ExpositionFormat::kPrometheusText, std::move(workers), done)) done({});
      });
}

// Nothing if it is longer than a trace in the archive may be.
std::string whole(JsonPieces pieces) {
  std::string text;
  while (text.size() <= kTraceBytesMax && pieces.next()) text += pieces.value();
  if (text.size() > kTraceBytesMax) text.clear();
  return text;
}

// Leaves what the server recorded: what users' programs send may have prompts and keys in it.
void remove_programs(control::ObservedTrace& observed) {
  observed.trace.logs.clear();
  observed.trace.linked_from.clear();
  const size_t removed = std::erase_if(observed.trace.spans, [](const auto& span) { return span.of_program; });
  if (removed == 0) return;
  observed.critical_path.clear();
  observed.explanation = {};
}

// The newest log records, a line of JSON each.
std::string log_lines(const control::Observer& observer, const control::UserId& user) {
  std::string lines;
  telemetry_store::LogQuery query;
  query.page.limit = kLogsOfPage;
  query.filter.time.from = system_clock().wall() - kBundleRange;
  query.filter.of_server = true;
  for (size_t count = 0; count < kBundleLogs && lines.size() < kLogBytesMax;) {
    const auto page = observer.logs(user, query);
    if (!page.ok() || page->logs.empty()) break;
    for (const telemetry_store::LogRecord& record : page->logs) {
      JsonWriter json;
      write_log(json, record);
      lines += std::move(json).take() + "\n";
    }
    count += page->logs.size();
    if (page->next.empty()) break;
    query.page.cursor = page->next;
  }
  return lines;
}

// Makes the archive, on a work thread.
class Bundle {
 public:
  Bundle(const control::Observer& observer, control::UserId user) : observer_(observer), user_(std::move(user)) {}

  Result<std::string> make(const std::string& metrics_page) {
    const control::SystemView system = observer_.system(user_);
    add("system.json", system_json(system, server_version(), metrics_page));
    add("config.yaml", system.config);
    add("metrics.txt", metrics_page);
    add("logs.jsonl", log_lines(observer_, user_));
    add_traces("slow", std::nullopt);
    add_traces("failed", true);
    end_tar(tar_);
    return gzip(tar_);
  }

 private:
  void add(const std::string& name, std::string_view content) {
    append_tar_file(tar_, "tuft-bundle/" + name, content, now_);
  }

  void add_traces(const std::string& folder, std::optional<bool> failed) {
    const telemetry_store::Filter filter{.time = {now_ - kBundleRange, now_}, .of_server = true, .failed = failed};
    auto page = observer_.traces(user_, filter, {.limit = kTracesLookedAt, .cursor = {}});
    if (!page.ok()) return;
    auto& traces = page->traces;
    if (!failed) {
      std::stable_sort(traces.begin(), traces.end(),
                       [](const auto& a, const auto& b) { return a.duration > b.duration; });
    }
    traces.resize(std::min(traces.size(), kBundleTraces));
    for (const telemetry_store::TraceSummary& summary : traces) {
      auto trace = observer_.trace(user_, summary.trace_id);
      if (!trace.ok()) continue;
      remove_programs(*trace);
      const std::string json =
          whole(trace_pieces(summary.trace_id, std::make_shared<const control::ObservedTrace>(std::move(*trace))));
      if (!json.empty()) add("traces/" + folder + "/" + summary.trace_id + ".json", json);
    }
  }

  const control::Observer& observer_;
  const control::UserId user_;
  const Nanos now_ = system_clock().wall();
  std::string tar_;
};

Result<Response> bundle_response(const control::Observer& observer, const control::UserId& user,
                                 const std::string& metrics_page) {
  TUFT_ASSIGN(std::string bytes, Bundle(observer, user).make(metrics_page));
  Response response;
  response.content_type = "application/gzip";
  response.body = std::move(bytes);
  response.headers.emplace_back("Content-Disposition", "attachment; filename=\"tuft-bundle.tar.gz\"");
  forbid_keeping(response);
  return response;
}

}  // namespace

std::string_view server_version() {
  return TUFT_VERSION;
}

Result<Answer> handle_observe_system(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({});
  TUFT_TRY(query.status());
  const control::Observer& observer = exchange.control.observer();
  auto system = std::make_shared<const control::SystemView>(observer.system(exchange.user));
  if (!system->is_whole) return observed_answer(system_json(*system, server_version(), {}));
  AwaitResponse later;
  later.limit = kSystemTimeout;
  later.start = [&control = exchange.control, page = exchange.metrics_page,
                 system](std::function<void(Result<Response>)> done) {
    with_metrics(control, page, [system, done = std::move(done)](const std::string& metrics) {
      done(observed_response(system_json(*system, server_version(), metrics)));
    });
  };
  return Answer(std::move(later));
}

Result<Answer> handle_observe_bundle(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({});
  TUFT_TRY(query.status());
  const control::Observer& observer = exchange.control.observer();
  if (!observer.is_operator(exchange.user)) {
    return Error{ErrorCode::kPermissionDenied, "only operators may do this: users named in console.operators",
                 "not_operator"};
  }
  TUFT_ASSIGN(ByteAccount::Hold memory, exchange.control.generation().hold_memory(exchange.user, kBundleBytes));
  auto held = std::make_shared<ByteAccount::Hold>(std::move(memory));
  AwaitResponse later;
  later.limit = kBundleTimeout;
  later.start = [&control = exchange.control, &work = *exchange.work, &observer, page = exchange.metrics_page,
                 user = exchange.user, held](std::function<void(Result<Response>)> done) {
    with_metrics(control, page, [&work, &observer, user, held, done = std::move(done)](std::string metrics) {
      const auto posted = work.post(user, kBundleCost, [&observer, user, held, done, metrics = std::move(metrics)] {
        done(bundle_response(observer, user, metrics));
      });
      if (!posted.ok()) done(posted.error());
    });
  };
  return Answer(std::move(later));
}

}  // namespace tuft::api
