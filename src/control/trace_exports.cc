#include "control/trace_exports.h"

#include <algorithm>
#include <utility>

#include "base/id.h"
#include "control/worker_telemetry.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/session_trace.h"
#include "telemetry/span_archive.h"

namespace tuft::control {
namespace {

constexpr size_t kTracesMax = 65'536;

constexpr std::string_view kTracingOff =
    "this server records no traces: set telemetry.enabled (and telemetry.trace_archive_bytes above 0) in its "
    "configuration; what ran before that has no trace";
constexpr std::string_view kNothingKept =
    "no span of this session is kept: sampling left its traces out (telemetry.sampling_ratio), they were pushed out by "
    "newer ones (telemetry.trace_archive_bytes), or the server was restarted since";

TraceExport failed(std::string_view why) {
  return {.state = TraceExport::State::kFailed, .error = std::string(why)};
}

// Session ids are ours, but what becomes a file name is looked at all the same.
std::string file_name(const SessionId& session) {
  std::string name = "session-" + session.str() + ".json";
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        return !word && c != '-' && c != '_' && c != '.';
      },
      '_');
  return name;
}

}  // namespace

struct TraceExports::Job {
  SessionId session;
  Nanos begin = 0;
  std::vector<std::string> ours;
  std::function<void(Result<TraceExport>)> done;
};

TraceExports::TraceExports(Parts parts) : parts_(std::move(parts)) {}

void TraceExports::make(const UserId& user, const SessionId& session, std::function<void(Result<TraceExport>)> done) {
  if (!parts_.owns(user, session)) return done(not_found("unknown session", "session_not_found"));
  const auto job = std::make_shared<Job>();
  job->session = session;
  job->begin = parts_.clock.monotonic();
  job->done = std::move(done);
  bool is_new = false;
  {
    MutexLock lock(mutex_);
    is_new = running_.insert(session).second;
  }
  if (!is_new) return job->done(TraceExport{.state = TraceExport::State::kPending});
  if (!telemetry::archives_spans()) return finish(job, failed(kTracingOff));
  const bool posted = thread_.post([weak = weak_from_this(), job] {
    if (const auto self = weak.lock()) self->gather(job);
  });
  // Asked again in some seconds.
  if (!posted) finish(job, {.state = TraceExport::State::kPending});
}

void TraceExports::gather(const JobPtr& job) {
  const std::vector<telemetry::TraceId> traces = telemetry::archived_traces(job->session.str(), kTracesMax);
  if (traces.empty()) return finish(job, failed(kNothingKept));
  job->ours.push_back(telemetry::archived_spans(traces, kExportBytes));
  collect_traces(parts_.backends, traces, kExportBytes,
                 [weak = weak_from_this(), job](std::vector<std::string> theirs) {
                   const auto self = weak.lock();
                   if (self == nullptr) return;
                   const bool posted = self->thread_.post([weak, job, theirs = std::move(theirs)]() mutable {
                     if (const auto again = weak.lock()) again->write(job, std::move(theirs));
                   });
                   if (!posted) self->finish(job, {.state = TraceExport::State::kPending});
                 });
}

void TraceExports::write(const JobPtr& job, std::vector<std::string> theirs) {
  std::vector<std::string> requests = std::move(job->ours);
  std::move(theirs.begin(), theirs.end(), std::back_inserter(requests));
  telemetry::SessionTrace trace = telemetry::make_session_trace(job->session.str(), requests);
  if (trace.spans == 0) return finish(job, failed(kNothingKept));
  TraceExport result{.state = TraceExport::State::kReady};
  result.expires = parts_.clock.wall() + kKept;
  const auto bytes = static_cast<int64_t>(trace.json.size());
  result.token =
      keep({file_name(job->session), std::make_shared<const std::string>(std::move(trace.json))}, result.expires);
  telemetry::log_info(
      "trace_export.completed", "the trace of a session was exported",
      {{"tuft.session_id", job->session.str()}, {"tuft.spans", trace.spans}, {"tuft.size_bytes", bytes}});
  finish(job, std::move(result));
}

// Over the bound the one that ends first goes.
std::string TraceExports::keep(TraceFile file, Nanos expires) {
  std::string token = random_uuid();
  const Nanos now = parts_.clock.wall();
  MutexLock lock(mutex_);
  kept_[token] = {std::move(file), expires};
  size_t bytes = 0;
  for (auto it = kept_.begin(); it != kept_.end();) {
    bytes += it->second.expires <= now ? 0 : it->second.file.json->size();
    it = it->second.expires <= now ? kept_.erase(it) : std::next(it);
  }
  while (bytes > kKeptBytesMax && kept_.size() > 1) {
    const auto oldest = std::min_element(
        kept_.begin(), kept_.end(), [](const auto& a, const auto& b) { return a.second.expires < b.second.expires; });
    bytes -= oldest->second.file.json->size();
    kept_.erase(oldest);
  }
  return token;
}

void TraceExports::finish(const JobPtr& job, TraceExport result) {
  {
    MutexLock lock(mutex_);
    running_.erase(job->session);
  }
  if (result.state != TraceExport::State::kPending) {
    const bool ready = result.state == TraceExport::State::kReady;
    telemetry::get_metrics().trace_export_duration.record(to_seconds(parts_.clock.monotonic() - job->begin),
                                                          {{"outcome", ready ? "ready" : "failed"}});
  }
  job->done(std::move(result));
}

Result<TraceFile> TraceExports::open(std::string_view token) {
  MutexLock lock(mutex_);
  const auto found = kept_.find(token);
  if (found == kept_.end() || found->second.expires <= parts_.clock.wall()) {
    return not_found("this address has expired, or the server was restarted; export the trace again",
                     "trace_export_expired");
  }
  return found->second.file;
}

void TraceExports::stop() {
  thread_.stop();
}

}  // namespace tuft::control
