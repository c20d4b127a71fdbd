#include "control/views/trace_exports.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <openssl/sha.h>

#include "base/id.h"
#include "control/workers/worker_telemetry.h"
#include "metrics/tenants.h"
#include "telemetry/export/span_archive.h"
#include "telemetry/log.h"
#include "telemetry/request/session_trace.h"

namespace tuft::control {
namespace {

constexpr size_t kTracesMax = 65'536;

constexpr std::string_view kTracingOff =
    "this server records no traces: set telemetry.enabled (and telemetry.trace_archive_bytes above 0) in its "
    "configuration; earlier requests have no trace";
constexpr std::string_view kNothingKept =
    "no span of this session is kept: sampling left its traces out (telemetry.sampling_ratio), they were pushed out by "
    "newer ones (telemetry.trace_archive_bytes), or the server was restarted since";

TraceExport failed(std::string_view why) {
  return {.state = TraceExport::State::kFailed, .error = std::string(why)};
}

// Session ids are made by the server, but a file name is sanitized anyway.
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
  UserId user;
  SessionId session;
  Nanos begin = 0;
  std::vector<std::string> ours;
  std::function<void(Result<TraceExport>)> done;
};

TraceExports::TraceExports(Parts parts) : parts_(std::move(parts)) {}

void TraceExports::make(const UserId& user, const SessionId& session, std::function<void(Result<TraceExport>)> done) {
  if (!parts_.owns(user, session)) return done(not_found("there is no such session", "session_not_found"));
  const auto job = std::make_shared<Job>();
  job->user = user;
  job->session = session;
  job->begin = parts_.clock.monotonic();
  job->done = std::move(done);
  bool is_new = false;
  {
    MutexLock lock(mutex_);
    is_new = running_.insert(user).second;
  }
  if (!is_new) return job->done(TraceExport{.state = TraceExport::State::kPending});
  if (!telemetry::archives_spans()) return finish(job, failed(kTracingOff));
  const Status posted = thread_.post(user, [weak = weak_from_this(), job] {
    if (const auto self = weak.lock()) self->gather(job);
  });
  // The client asks again in a few seconds.
  if (!posted.ok()) finish(job, {.state = TraceExport::State::kPending});
}

void TraceExports::gather(const JobPtr& job) {
  const std::vector<telemetry::TraceId> traces = telemetry::archived_traces(job->session.str(), kTracesMax);
  if (traces.empty()) return finish(job, failed(kNothingKept));
  job->ours.push_back(telemetry::archived_spans(traces, kExportBytes));
  collect_traces(
      parts_.backends, traces, kExportBytes, [weak = weak_from_this(), job](std::vector<std::string> theirs) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        const bool posted = self->thread_.post_rest(job->user, [weak, job, theirs = std::move(theirs)]() mutable {
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
  result.token = keep(job->user, {file_name(job->session), std::make_shared<const std::string>(std::move(trace.json))},
                      result.expires);
  telemetry::log_info(
      "trace_export.completed", "the trace of a session was exported",
      {{"tuft.session_id", job->session.str()}, {"tuft.spans", trace.spans}, {"tuft.size_bytes", bytes}});
  finish(job, std::move(result));
}

TraceExports::Hash TraceExports::hash_of(std::string_view token) {
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

std::string TraceExports::keep(const UserId& user, TraceFile file, Nanos expires) {
  std::string token = random_uuid();
  const size_t bytes = file.json->size();
  MutexLock lock(mutex_);
  drop_expired_locked();
  std::map<UserId, size_t> used = bytes_by_user_locked();
  while (used[user] > 0 && used[user] + bytes > parts_.user_bytes_max) used[user] -= drop_oldest_locked(user);
  used[user] += bytes;
  kept_[hash_of(token)] = {user, std::move(file), expires, ++last_number_};
  size_t all = 0;
  for (const auto& [each, of_each] : used) all += of_each;
  while (all > parts_.kept_bytes_max && kept_.size() > 1) {
    const auto most =
        std::max_element(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const size_t freed = drop_oldest_locked(most->first);
    most->second -= freed;
    all -= freed;
  }
  return token;
}

void TraceExports::drop_expired_locked() {
  const Nanos now = parts_.clock.wall();
  std::erase_if(kept_, [now](const auto& entry) { return entry.second.expires <= now; });
}

std::map<UserId, size_t> TraceExports::bytes_by_user_locked() const {
  std::map<UserId, size_t> used;
  for (const auto& [hash, kept] : kept_) used[kept.user] += kept.file.json->size();
  return used;
}

size_t TraceExports::drop_oldest_locked(const UserId& user) {
  auto oldest = kept_.end();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (it->second.user != user) continue;
    if (oldest == kept_.end() || it->second.number < oldest->second.number) oldest = it;
  }
  if (oldest == kept_.end()) return 0;
  const size_t bytes = oldest->second.file.json->size();
  kept_.erase(oldest);
  return bytes;
}

void TraceExports::finish(const JobPtr& job, TraceExport result) {
  {
    MutexLock lock(mutex_);
    running_.erase(job->user);
  }
  if (result.state != TraceExport::State::kPending) {
    const bool ready = result.state == TraceExport::State::kReady;
    metrics::tenants().trace_export_duration.record(to_seconds(parts_.clock.monotonic() - job->begin),
                                                    {{"outcome", ready ? "ready" : "failed"}});
  }
  job->done(std::move(result));
}

Result<TraceFile> TraceExports::open(std::string_view token) {
  const Hash hash = hash_of(token);
  MutexLock lock(mutex_);
  const auto found = kept_.find(hash);
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
