#include "app/tuft_worker/joined.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "app/tuft_worker/end_signal.h"
#include "app/tuft_worker/launcher.h"
#include "app/tuft_worker/served_model.h"
#include "app/tuft_worker/worker_process.h"
#include "app/tuft_worker/worker_telemetry.h"
#include "base/file.h"
#include "base/host.h"
#include "base/id.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "bucket/bucket.h"
#include "join/dialer.h"
#include "join/digest.h"
#include "telemetry/host/machine.h"
#include "telemetry/log.h"
#include "telemetry/telemetry.h"

namespace tuft::app {
namespace {

constexpr Nanos kRetryMin = 500 * kMillisecond;
constexpr Nanos kRetryMax = 15 * kSecond;
// A worker that has lost its server looks for it, or another one, at least each second for a while, and as long as runs
// wait for what it holds.
constexpr Nanos kSoonMax = kSecond;
constexpr Nanos kSoon = 60 * kSecond;
constexpr size_t kTokenBytesMax = 4096;
constexpr size_t kProofBytesMax = 4096;

Result<worker::v1::JoinRequest> make_request(const WorkerFlags& flags) {
  worker::v1::JoinRequest request;
  if (!flags.join.token_file.empty()) {
    TUFT_ASSIGN(const std::string token, read_file(flags.join.token_file, kTokenBytesMax));
    request.set_token(std::string(trimmed(token)));
    if (is_open_to_others(flags.join.token_file)) {
      telemetry::log_warning("worker.token_exposed",
                             "--join-token-file: " + flags.join.token_file.string() + " " + std::string(kOpenToOthers));
    }
  }
  request.set_version(TUFT_VERSION);
  request.set_base_model(flags.model_name);
  TUFT_ASSIGN(*request.mutable_config_sha256(), join::config_sha256(flags.model_path));
  request.set_worker_id(random_uuid());
  request.set_host(host_name());
  request.set_pid(::getpid());
  if (const auto memory = telemetry::internal::read_memory_use()) {
    request.set_memory_bytes(static_cast<int64_t>(memory->total));
  }
  request.set_cores(usable_cores());
  for (const auto& [key, value] : launcher_attributes()) (*request.mutable_launcher())[key] = value;
  return request;
}

// What the server says of the base model. A worker keeps nothing under other settings.
struct ServerSettings {
  std::vector<std::string> flags;
  std::string bucket;
  bool operator==(const ServerSettings&) const = default;
};

class JoiningWorker {
 public:
  JoiningWorker(const WorkerFlags& flags, const std::vector<std::string>& arguments, const EndSignal& end)
      : own_(flags), arguments_(arguments), end_(end) {}

  // Returns when a signal has come, and what this worker holds is saved, cannot be saved, or its time is over.
  Status run() {
    TUFT_ASSIGN(const std::vector<Server> servers, make_servers());
    TUFT_ASSIGN(worker::v1::JoinRequest request, make_request(own_));
    Nanos delay = kRetryMin;
    Nanos served_at = 0;  // until then
    size_t failures = 0;  // in a row
    for (size_t next = 0; !is_over(); next = (next + 1) % servers.size()) {
      request.set_adapters(adapters());
      Status served = join_and_serve(servers[next], request);
      if (served.ok()) {
        failures = 0;
        delay = kRetryMin;
        served_at = now();
        next = servers.size() - 1;  // from the first again
        continue;
      }
      const bool is_refused = served.error().reason != "join_failed";
      if (is_over() || (end_.come() && is_refused)) break;
      if (is_refused) return served;
      if (++failures % servers.size() != 0) continue;
      telemetry::log_warning("worker.join_waits", served.error().message + "; trying again",
                             {{"tuft.base_model", own_.model_name}, {"tuft.seconds", to_seconds(delay)}});
      wait(delay);
      const bool is_soon = adapters() > 0 || (served_at != 0 && now() < served_at + kSoon);
      delay = std::min(2 * delay, is_soon ? kSoonMax : kRetryMax);
      if (served_ && now() > keep_until_) give_up();
    }
    if (served_) end_service(*served_);
    return {};
  }

 private:
  // One address of --join.
  struct Server {
    std::string address;
    std::unique_ptr<join::Dialer> dialer;
  };

  static bool is_cut(join::End end) { return end == join::End::kBroken || end == join::End::kSilent; }
  static Nanos now() { return system_clock().monotonic(); }
  int64_t adapters() const { return served_ ? static_cast<int64_t>(served_->adapters()) : 0; }
  // A server that has ended in order is perhaps stopped together with its workers, and none of them waits for it.
  bool waits_for_server() const { return was_cut_ && adapters() > 0; }
  bool is_over() const { return end_.come() && (!waits_for_server() || end_.rest() == 0); }
  void wait(Nanos delay) const {
    if (!end_.come()) return end_.wait(-1, delay);
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(delay, end_.rest())));
  }

  Result<std::vector<Server>> make_servers() const {
    TUFT_ASSIGN(std::vector<join::DialOptions> addresses, join::parse_addresses(own_.join.address));
    std::vector<Server> servers;
    for (join::DialOptions& options : addresses) {
      options.tls = {{"--join-certificate", own_.join.certificate},
                     {"--join-key", own_.join.private_key},
                     {"--join-ca", own_.join.authority}};
      TUFT_ASSIGN(auto dialer, join::Dialer::create(options));
      servers.push_back({options.host + ":" + std::to_string(options.port), std::move(dialer)});
    }
    return servers;
  }

  // The connection ends when it returns. "join_failed": it may succeed later.
  Status join_and_serve(const Server& server, const worker::v1::JoinRequest& request) {
    const int end_fd = waits_for_server() ? end_.drained_fd() : end_.come_fd();
    TUFT_ASSIGN(join::Joined joined, server.dialer->join(request, end_fd));
    TUFT_TRY(check_epoch(joined.response.epoch()));
    return serve(joined, server.address);
  }

  // A server that another one has replaced may not know it yet. This worker does if it has joined the other one.
  Status check_epoch(uint64_t epoch) {
    if (epoch != 0 && epoch < newest_epoch_) {
      return unavailable("the server does not lead any more: its epoch is " + std::to_string(epoch) +
                             ", and this worker has joined one of epoch " + std::to_string(newest_epoch_),
                         "join_failed");
    }
    newest_epoch_ = std::max(newest_epoch_, epoch);
    return {};
  }

  Status serve(join::Joined& joined, const std::string& address) {
    TUFT_ASSIGN(const WorkerFlags flags, flags_of(joined.response));
    TUFT_TRY(flags.bucket ? check_bucket(*flags.bucket, joined.response) : check_files(joined.response));
    const ServerSettings settings = {{joined.response.flags().begin(), joined.response.flags().end()},
                                     joined.response.bucket()};
    if (served_ && settings != settings_) give_up();
    TUFT_TRY(start_telemetry_once(joined.response));
    telemetry::log_info("worker.accepted", "joined the server at " + address,
                        {{"tuft.base_model", own_.model_name}, {"tuft.adapters", adapters()}});
    if (is_over()) return {};
    if (!served_) TUFT_TRY(load(flags, settings));
    const join::Connection& connection = *joined.connection;
    if (is_over()) return {};
    was_cut_ = is_cut(connection.end());
    if (connection.end() != join::End::kOpen) return {};
    served_->connect(joined.connection->take_descriptor());
    end_.wait(connection.ended_fd());
    // Until the server lets this worker go. A drain whose connection breaks goes on after the next join.
    if (end_.come()) served_->drain(connection.ended_fd(), end_.rest());
    const join::End end = connection.end();
    was_cut_ = is_cut(end);
    if (!is_over()) keep(joined.response.keep_milliseconds() * kMillisecond, end);
    return {};
  }

  Result<WorkerFlags> flags_of(const worker::v1::JoinResponse& response) const {
    TUFT_ASSIGN(WorkerFlags flags, merge_flags({response.flags().begin(), response.flags().end()}, arguments_));
    if (!response.bucket().empty()) {
      TUFT_ASSIGN(flags.bucket, bucket::settings_from_json(response.bucket()));
    }
    flags.traceparent = response.traceparent();
    return flags;
  }

  Status load(const WorkerFlags& flags, const ServerSettings& settings) {
    TUFT_ASSIGN(LoadedModel model, load_model(flags));
    if (end_.come()) return {};
    TUFT_ASSIGN(served_, ServedModel::start(flags, std::move(model)));
    settings_ = settings;
    return {};
  }

  // The connection has ended. What this worker holds waits for the next one.
  void keep(Nanos limit, join::End end) {
    keep_until_ = now() + limit;
    telemetry::log_warning(
        "worker.disconnected",
        "this worker " + join::describe(end) + "; it joins again, and keeps its adapters until then",
        {{"tuft.base_model", own_.model_name}, {"tuft.adapters", adapters()}, {"tuft.seconds", to_seconds(limit)}});
    if (limit == 0) give_up();
  }

  void give_up() {
    const int64_t lost = adapters();
    served_.reset();
    if (lost == 0) return;
    telemetry::log_warning("worker.gave_up", "this worker gives up its adapters: its server may have moved their runs",
                           {{"tuft.base_model", own_.model_name}, {"tuft.adapters", lost}});
  }

  // The server names checkpoints by their paths.
  static Status check_files(const worker::v1::JoinResponse& response) {
    if (response.proof_file().empty()) return {};
    const auto found = read_file(response.proof_file(), kProofBytesMax);
    if (found.ok() && *found == response.proof()) return {};
    return failed_precondition("this machine does not have the server's checkpoint_dir: " + response.proof_file() +
                               (found.ok() ? " is that of another" : " is not here") +
                               "; mount it here, with the same path");
  }

  static Status check_bucket(const bucket::Settings& settings, const worker::v1::JoinResponse& response) {
    TUFT_ASSIGN(const auto bucket, bucket::open_s3(settings));
    const auto found = bucket->get(response.proof_file(), kProofBytesMax);
    if (found.ok() && *found == response.proof()) return {};
    const std::string where = "the server's bucket of checkpoints at " + settings.endpoint;
    if (!found.ok() && found.error().code == ErrorCode::kUnavailable) {
      return unavailable("this machine cannot reach " + where + ": " + found.error().message, "join_failed");
    }
    return failed_precondition("this machine does not find what it should in " + where + ": " +
                               (found.ok() ? "it is that of another server" : found.error().message) +
                               "; give bucket.endpoint an address that is the same for the server and its workers");
  }

  // The configuration of a server that was started again with another one counts after a start of the worker.
  Status start_telemetry_once(const worker::v1::JoinResponse& response) {
    if (std::exchange(has_telemetry_, true)) return {};
    TUFT_ASSIGN(const auto config, telemetry_config_of(response.telemetry(), own_.model_name, launcher_attributes()));
    return start_telemetry(config);
  }

  const WorkerFlags& own_;
  const std::vector<std::string>& arguments_;
  const EndSignal& end_;
  bool has_telemetry_ = false;
  std::unique_ptr<ServedModel> served_;  // null: the weights are not in memory
  ServerSettings settings_;              // with which they were read
  Nanos keep_until_ = 0;
  bool was_cut_ = false;       // how the last connection ended: it broke, so the server may be there
  uint64_t newest_epoch_ = 0;  // of the servers that it has joined; 0: none had one
};

}  // namespace

int serve_joined(const WorkerFlags& flags, const std::vector<std::string>& arguments) {
  EndSignal end(flags.join.drain_seconds * kSecond, kEndGrace);
  Status status = tie_to_parent(flags.parent_pid);
  if (status.ok()) status = start_logging(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "tuft-worker: %s\n", status.error().message.c_str());
    return 1;
  }
  return end_process(flags, JoiningWorker(flags, arguments, end).run());
}

}  // namespace tuft::app
