#include "control/workers/worker_telemetry.h"

#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace tuft::control {
namespace {

bool is_empty(const telemetry::WorkerMetrics& answer) {
  return answer.snapshot.empty();
}
bool is_empty(const std::string& answer) {
  return answer.empty();
}

// Collects the answers of several workers. The destructor, when the last worker has answered, passes on those that are
// not empty.
template <typename Answer>
class Collection {
 public:
  using Done = std::function<void(std::vector<Answer>)>;
  Collection(size_t workers, Done done) : done_(std::move(done)), answers_(workers) {}
  ~Collection() {
    std::vector<Answer> found;
    {
      MutexLock lock(mutex_);
      for (Answer& answer : answers_) {
        if (!is_empty(answer)) found.push_back(std::move(answer));
      }
    }
    done_(std::move(found));
  }
  Collection(const Collection&) = delete;
  Collection& operator=(const Collection&) = delete;

  void put(size_t index, Answer answer) {
    MutexLock lock(mutex_);
    answers_[index] = std::move(answer);
  }

 private:
  const Done done_;
  Mutex mutex_;
  std::vector<Answer> answers_ TUFT_GUARDED_BY(mutex_);
};

template <typename Request>
void add_traces(std::span<const telemetry::TraceId> traces, Request& request) {
  for (const telemetry::TraceId& trace : traces) {
    worker::v1::TraceId& added = *request.add_traces();
    added.set_high(trace.high);
    added.set_low(trace.low);
  }
}

}  // namespace

void collect_metrics(const ModelBackends& backends, std::function<void(std::vector<telemetry::WorkerMetrics>)> done) {
  const auto collection =
      std::make_shared<Collection<telemetry::WorkerMetrics>>(backends.all().size(), std::move(done));
  for (size_t i = 0; i < backends.all().size(); ++i) {
    const ModelBackendPtr& backend = backends.all()[i];
    if (!backend->actor().ready()) continue;
    backend->actor().collect_metrics({}, {},
                                     [collection, i, backend](Result<worker::v1::CollectMetricsResponse> answer) {
                                       if (answer.ok())
                                         collection->put(i, {backend->label(), std::move(*answer->mutable_snapshot())});
                                     });
  }
}

void collect_traces(const ModelBackends& backends, std::span<const telemetry::TraceId> traces, size_t bytes_max,
                    std::function<void(std::vector<std::string>)> done) {
  worker::v1::CollectTracesRequest request;
  add_traces(traces, request);
  request.set_bytes_max(static_cast<int64_t>(bytes_max));
  const auto collection = std::make_shared<Collection<std::string>>(backends.all().size(), std::move(done));
  for (size_t i = 0; i < backends.all().size(); ++i) {
    const ModelBackendPtr& backend = backends.all()[i];
    if (!backend->actor().ready()) continue;
    backend->actor().collect_traces(request, {}, [collection, i](Result<worker::v1::CollectTracesResponse> answer) {
      if (answer.ok()) collection->put(i, std::move(*answer->mutable_spans()));
    });
  }
}

void keep_traces(const ModelBackends& backends, std::span<const telemetry::TraceId> traces) {
  worker::v1::KeepTracesRequest request;
  add_traces(traces, request);
  for (const auto& backend : backends.all()) {
    if (!backend->actor().ready()) continue;
    backend->actor().keep_traces(request, {}, [](const Result<worker::v1::KeepTracesResponse>&) {});
  }
}

}  // namespace tuft::control
