#include "app/tuft/launch.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <malloc.h>
#include <map>
#include <memory>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "actor/supervisor.h"
#include "api/server.h"
#include "app/tuft/address_file.h"
#include "app/tuft/checkpoint_bucket.h"
#include "app/tuft/join_port.h"
#include "app/tuft/kept_telemetry.h"
#include "app/tuft/key_file.h"
#include "app/tuft/runtime_directory.h"
#include "app/tuft/signals.h"
#include "app/tuft/standby.h"
#include "app/tuft/state_store.h"
#include "app/tuft/sweeper.h"
#include "app/tuft/worker_command.h"
#include "base/host.h"
#include "control/control_plane.h"
#include "intake/grpc_intake.h"
#include "metrics/catalogue.h"
#include "metrics/checkpoint_disk.h"
#include "metrics/leadership.h"
#include "rpc/protobuf_log.h"
#include "store/leadership.h"
#include "telemetry/log.h"
#include "telemetry/settings/config_json.h"
#include "telemetry/telemetry.h"
#include "telemetry/trace.h"

namespace tuft::app {
namespace {

constexpr Nanos kServerGrace = kSecond;
constexpr Nanos kIntakeGrace = 200 * kMillisecond;
constexpr Nanos kShutdownBudget = 4500 * kMillisecond;
constexpr Nanos kTelemetryBudgetMin = 500 * kMillisecond;
constexpr Nanos kReadyPoll = 100 * kMillisecond;
constexpr Nanos kLookAtFiles = kSecond;
constexpr Nanos kShutdownLimit = 4900 * kMillisecond;
constexpr Nanos kLostGrace = 300 * kMillisecond;
constexpr int kLostStatus = 3;  // another server leads

// As if the process had been killed: the server that leads now goes on with what is stored. The log gets what the short
// limit allows.
void end_at_once(store::LeaderLoss) {
  limit_shutdown(kLostGrace, kLostStatus);
  telemetry::flush_logging();
  ::_exit(kLostStatus);
}

// Raises the limit of open files, because every open long poll has a socket. Returns the limit.
uint64_t raise_file_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

void warn_of_few_files(uint64_t files_max, const config::ServerConfig& config) {
  constexpr uint64_t kOwnFiles = 256;  // for logs, stores and workers
  const auto connections = static_cast<uint64_t>(config.limits.connections_max);
  uint64_t needed = connections + kOwnFiles;
  if (config.telemetry_intake.http_port != 0) needed += connections;
  if (config.telemetry_intake.grpc_port != 0) needed += intake::kGrpcConnectionsMax;
  if (files_max >= needed) return;
  telemetry::log_warning(
      "server.few_files",
      "this process may open " + std::to_string(files_max) + " files, fewer than the " + std::to_string(needed) +
          " that limits.connections_max on each port and the server's own files need; raise the hard limit (ulimit "
          "-Hn, LimitNOFILE=) or lower the key",
      {{"tuft.open_files_max", files_max}});
}

class ServerProcess {
 public:
  // `leadership` is null, or that of this server, which leads.
  ServerProcess(const config::ServerConfig& config, const std::optional<bucket::Settings>& bucket, KeptTelemetry& kept,
                store::Leadership* leadership)
      : config_(config),
        bucket_(bucket),
        kept_(kept),
        leadership_(leadership),
        address_file_(config.home / "tuft_current_server"),
        key_file_(config) {}

  ~ServerProcess() { stop(); }

  Status start() {
    // First, so that an unreachable store, or one of another configuration, fails the start at once.
    TUFT_ASSIGN(std::unique_ptr<control::Persistence> persistence, open_persistence(config_, leadership_));
    TUFT_ASSIGN(std::unique_ptr<control::CheckpointStorage> storage, open_storage(config_, bucket_));
    TUFT_ASSIGN(runtime_, RuntimeDirectory::create(config_.home));
    TUFT_TRY(make_actors());
    std::vector<actor::ModelActor*> ports;
    for (const auto& actor : actors_) ports.push_back(actor.get());
    control_ = control::ControlPlane::create(config_, ports, system_clock(), std::move(persistence), kept_.store(),
                                             std::move(storage));
    // What was read is much larger than what is kept of it, and the allocator would not return the difference.
    malloc_trim(0);
    kept_.ask_for_owners(control_.get());
    TUFT_ASSIGN(const auto users, key_file_.read());
    warn_of_unknown_operators(users);
    control_->replace_api_keys(users);
    // Before the weights are read, so that a port in use fails the start at once.
    api::Server::Options options{.host = config_.host,
                                 .port = config_.port,
                                 .public_url = config_.public_url,
                                 .limits = config_.limits,
                                 .tls = config_.tls,
                                 .console = config_.console.enabled};
    options.metrics = {config_.telemetry.metrics_endpoint, config_.telemetry.metrics_token};
    TUFT_ASSIGN(server_, api::Server::create(options, *control_));
    if (leadership_ != nullptr) leadership_->set_address(advertised_address(config_, server_->port()));
    TUFT_TRY(start_intake(options));
    for (const auto& actor : actors_) TUFT_TRY(actor->start());
    return {};
  }

  // Users' own programs send when they like, so nothing is said to them before the server is ready.
  Status start_intake(api::Server::Options options) {
    const config::TelemetryIntakeConfig& ports = config_.telemetry_intake;
    if (ports.http_port != 0) {
      options.port = ports.http_port;
      options.routes = api::intake_routes();
      options.metrics = {};
      options.io_threads = 1;
      options.is_first = false;
      TUFT_ASSIGN(http_intake_, api::Server::create(options, *control_));
    }
    if (ports.grpc_port != 0) {
      const auto authenticate = [this](std::string_view key) { return control_->authenticate(key); };
      TUFT_ASSIGN(grpc_intake_,
                  intake::serve_grpc({config_.host, ports.grpc_port, config_.tls}, authenticate, control_->intake()));
    }
    return {};
  }

  // Returns false if a stop signal came first. No request is answered before it returns, so any answer to a health
  // check means that the server is ready.
  // Nobody knows when a worker will join, so nothing waits for it.
  Result<bool> wait_ready() {
    for (const size_t number : local_actors_) {
      while (true) {
        if (stop_requested()) return false;
        const Status ready = actors_[number]->wait_ready(kReadyPoll);
        if (ready.ok()) break;
        if (ready.error().code != ErrorCode::kDeadlineExceeded) return ready.error();
      }
    }
    return true;
  }

  void serve() {
    serving_ = std::thread([this] { run_server(); });
    sweeper_.emplace([this] { control_->sweep(); });
    if (http_intake_) serving_intake_ = std::thread([this] { http_intake_->run(); });
    const std::string address = http_address(config_.host, server_->port(), !config_.tls.certificate.empty());
    if (const Status written = address_file_.write(address); !written.ok()) {
      telemetry::log_warning("server.address_file", written.error().message + "; trying again each second");
      unwritten_address_ = address;
    }
    std::string models;
    for (const auto& model : config_.supported_models) models += (models.empty() ? "" : ", ") + model.model_name;
    telemetry::log_info("server.ready", "tuft " TUFT_VERSION " serving " + models + " on " + address,
                        {{"server.address", config_.host}, {"server.port", server_->port()}});
  }

  void write_missing_address() {
    if (!unwritten_address_.empty() && address_file_.write(unwritten_address_).ok()) unwritten_address_.clear();
  }

  // Reads the API keys and the TLS files again. If one cannot be used, the previous one stays in use.
  void reload() {
    key_file_.reload([this](const auto& users) { control_->replace_api_keys(users); });
    if (join_port_) {
      const Status status = join_port_->reload();
      if (!status.ok()) {
        telemetry::log_error("join.reload_failed", status.error().message + "; the former files stay in use");
      }
    }
    if (config_.tls.certificate.empty()) return;
    Status status = server_->reload_tls();
    if (status.ok() && http_intake_) status = http_intake_->reload_tls();
    if (!status.ok()) {
      telemetry::log_error("tls.reload_failed", status.error().message + "; the former certificate stays in use");
    } else {
      telemetry::log_info("tls.reloaded", "new connections use the new certificate");
    }
  }
  void reload_changed_keys() {
    key_file_.reload_changed([this](const auto& users) { control_->replace_api_keys(users); });
  }

  void stop() {
    address_file_.remove();
    stopping_ = true;
    sweeper_.reset();
    if (server_ && serving_.joinable()) server_->stop(kServerGrace);
    if (serving_.joinable()) serving_.join();
    stop_intake();
    if (control_) control_->shut_down();
    if (join_port_) join_port_->close();
    std::vector<std::thread> stops;
    for (const auto& actor : actors_) stops.emplace_back([&actor] { actor->stop(); });
    for (std::thread& thread : stops) thread.join();
    server_.reset();
    http_intake_.reset();
    grpc_intake_.reset();
    kept_.ask_for_owners(nullptr);
    control_.reset();
    actors_.clear();
    join_port_.reset();
    runtime_.reset();
    if (leadership_ != nullptr) leadership_->resign();
  }

 private:
  Status make_actors() {
    TUFT_ASSIGN(const std::filesystem::path executable, worker_executable());
    if (config_.join.port != 0) {
      TUFT_ASSIGN(join_port_, JoinPort::open(config_, bucket_, leadership_));
    }
    const int threads = threads_per_worker(usable_cores(), local_workers_of(config_));
    for (const config::ModelConfig& model : config_.supported_models) {
      if (model.worker == config::WorkerKind::kJoined) {
        for (auto& actor : join_port_->make_actors(model, may_call())) actors_.push_back(std::move(actor));
      } else {
        TUFT_TRY(make_local_actors(model, executable, threads));
      }
    }
    return {};
  }

  Status make_local_actors(const config::ModelConfig& model, const std::filesystem::path& executable, int threads) {
    const actor::SharedByWorkers shared;
    for (int i = 0; i < model.workers; ++i) {
      // One directory per worker, because the names of its sockets do not contain the model.
      const std::filesystem::path sockets = runtime_->path() / std::to_string(actors_.size());
      std::error_code failure;
      std::filesystem::create_directory(sockets, failure);
      if (failure) return internal_error("cannot make " + sockets.string() + ": " + failure.message());
      actor::WorkerSpec spec = worker_spec(config_, model, executable, sockets, threads);
      spec.shared = shared;
      spec.may_call = may_call();
      local_actors_.push_back(actors_.size());
      actors_.push_back(actor::make_supervised_actor(std::move(spec)));
    }
    return {};
  }

  // A server that was stopped while another one took over must not call a worker when it goes on.
  std::function<bool()> may_call() const {
    if (leadership_ == nullptr) return {};
    return [leadership = leadership_] { return leadership->leads(); };
  }

  void stop_intake() {
    if (http_intake_ && serving_intake_.joinable()) http_intake_->stop(kIntakeGrace);
    if (serving_intake_.joinable()) serving_intake_.join();
    if (grpc_intake_) grpc_intake_->stop();
  }

  // Without a file, the configuration has been checked when it was read.
  void warn_of_unknown_operators(const std::map<std::string, std::string>& users) const {
    if (config_.authorized_users_file.empty()) return;
    for (const std::string& name : config::unknown_operators(config_.console, users)) {
      telemetry::log_warning("config.warning", "console.operators names " + name +
                                                   ", which no key of authorized_users and authorized_users_file "
                                                   "belongs to");
    }
  }

  void run_server() {
    server_->run();
    if (stopping_) return;
    telemetry::log_error("server.ended", "the HTTP server ended unexpectedly; stopping");
    ::kill(::getpid(), SIGTERM);
  }

  const config::ServerConfig& config_;
  const std::optional<bucket::Settings>& bucket_;
  KeptTelemetry& kept_;
  store::Leadership* const leadership_;
  AddressFile address_file_;
  std::string unwritten_address_;  // not empty: its file could not be written yet
  KeyFile key_file_;
  std::unique_ptr<RuntimeDirectory> runtime_;
  std::unique_ptr<JoinPort> join_port_;  // null: there is none
  std::vector<std::unique_ptr<actor::SupervisedActor>> actors_;
  std::vector<size_t> local_actors_;  // of actors_: those of workers that this process starts
  std::unique_ptr<control::ControlPlane> control_;
  std::unique_ptr<api::Server> server_;
  std::unique_ptr<api::Server> http_intake_;  // null, as the next: there is none
  std::unique_ptr<intake::GrpcIntake> grpc_intake_;
  std::thread serving_;
  std::thread serving_intake_;
  std::optional<Sweeper> sweeper_;
  std::atomic<bool> stopping_ = false;
};

int start_failed(const Error& error) {
  telemetry::log_error("server.start_failed", error.message);
  return 1;
}

// Telemetry gets the rest of the shutdown budget.
int end(int status, Nanos began) {
  const Nanos spent = system_clock().monotonic() - began;
  telemetry::shutdown_telemetry(std::max(kTelemetryBudgetMin, kShutdownBudget - spent));
  telemetry::flush_logging();
  return status;
}

// Returns at a stop signal.
void serve_signals(ServerProcess& process) {
  while (true) {
    const int signal = next_signal(kLookAtFiles);
    if (signal == SIGINT || signal == SIGTERM) return;
    if (signal == SIGHUP) {
      process.reload();
    } else {
      process.reload_changed_keys();
      process.write_missing_address();
    }
  }
}

struct Elected {
  uint16_t port = 0;         // to serve at
  Nanos at = 0;              // by Clock::monotonic()
  std::future<void> former;  // the end of what stood by
};

// Returns when this server leads; nothing after a stop signal.
Result<std::optional<Elected>> lead(const config::ServerConfig& config, store::Leadership& leadership) {
  const Result<store::Lease::Standing> standing = leadership.campaign();
  if (!standing.ok()) {
    return Error{standing.error().code, "persistence.redis_url: " + standing.error().message, standing.error().reason};
  }
  if (standing->leads) return std::optional(Elected{config.port, system_clock().monotonic(), {}});
  auto standby = std::make_unique<Standby>(config, leadership);
  TUFT_TRY(standby->start(standing->leader));
  if (!standby->wait()) return std::optional<Elected>();
  Elected elected{standby->port(), system_clock().monotonic(), {}};
  standby->stop();
  // Clients need not wait for the end of what it is reading, nor until all records of its views are freed.
  elected.former = std::async(std::launch::async, [standby = std::move(standby)]() mutable { standby.reset(); });
  return std::optional(std::move(elected));
}

// Serves as the leader, which it is since `elected`. Returns the exit status when it has stopped.
int serve_as_leader(const config::ServerConfig& config, const std::optional<bucket::Settings>& bucket,
                    KeptTelemetry& kept, store::Leadership* leadership, Nanos elected) {
  std::optional<telemetry::Span> takeover;
  if (leadership != nullptr) {
    takeover =
        telemetry::get_tracer("tuft.server")
            .start_span("leader.takeover",
                        {.attributes = {{"tuft.leader.epoch", leadership->epoch()}}, .parent = {}, .start = elected});
  }
  ServerProcess process(config, bucket, kept, leadership);
  int status = 0;
  if (const Status started = process.start(); !started.ok()) {
    status = start_failed(started.error());
  } else if (const Result<bool> ready = process.wait_ready(); !ready.ok()) {
    status = start_failed(ready.error());
  } else if (*ready) {
    process.serve();
    if (takeover) {
      metrics::leadership().takeover_duration.record(to_seconds(system_clock().monotonic() - elected));
      takeover.reset();
    }
    serve_signals(process);
  }
  limit_shutdown(kShutdownLimit, 1);
  const Nanos began = system_clock().monotonic();
  telemetry::log_info("server.draining", "stopping; requests in flight can finish");
  process.stop();
  telemetry::log_info("server.stopped", "stopped", {{"tuft.seconds", to_seconds(system_clock().monotonic() - began)}});
  kept.close();
  return end(status, began);
}

int serve_until_stopped(config::ServerConfig config, const std::optional<bucket::Settings>& bucket) {
  KeptTelemetry kept(config.telemetry_store);
  const auto fail = [&](const Error& error) { return end(start_failed(error), system_clock().monotonic()); };
  const auto leadership = make_leadership(config, end_at_once);
  Elected elected;
  if (!leadership.ok()) return fail(leadership.error());
  if (*leadership != nullptr) {
    Result<std::optional<Elected>> found = lead(config, **leadership);
    if (!found.ok()) return fail(found.error());
    if (!*found) return end(0, system_clock().monotonic());
    elected = std::move(**found);
    config.port = elected.port;
  }
  return serve_as_leader(config, bucket, kept, leadership->get(), elected.at);
}

telemetry::LogOptions log_options(const config::ServerConfig& config) {
  telemetry::LogOptions options;
  if (const auto level = telemetry::parse_severity(config.log_level); level.ok()) options.level = *level;
  options.format = config.log_format == "json" ? telemetry::LogFormat::kJson : telemetry::LogFormat::kText;
  return options;
}

}  // namespace

int launch(const LaunchOptions& options) {
  const Result<config::Loaded> loaded = config::load_config(options.overrides);
  if (!loaded.ok()) {
    std::fprintf(stderr, "tuft launch: %s\n", loaded.error().message.c_str());
    return loaded.error().reason == "no_config" ? 2 : 1;
  }
  const config::ServerConfig& config = loaded->config;
  const auto bucket = take_bucket_settings(config);
  if (!bucket.ok()) {
    std::fprintf(stderr, "tuft launch: %s\n", bucket.error().message.c_str());
    return 1;
  }
  take_over_signals();
  const uint64_t files_max = raise_file_limit();
  metrics::register_all();
  telemetry::init_logging(log_options(config));
  rpc::take_protobuf_log([](std::string_view message) { telemetry::log_warning("protobuf.message", message); });
  for (const std::string& warning : loaded->warnings) telemetry::log_warning("config.warning", warning);
  if (options.reload) telemetry::log_warning("launch.reload", "--reload has no effect; start the server again instead");
  // The workers inherit it. It contains header values, which must not be on a command line. No other thread that reads
  // the environment runs yet.
  ::setenv(telemetry::kTelemetryVariable, telemetry::to_json(config.telemetry).c_str(), 1);
  if (const Status status = telemetry::init_telemetry(config.telemetry); !status.ok()) {
    return end(start_failed(status.error()), system_clock().monotonic());
  }
  if (telemetry::telemetry_enabled() || config.telemetry.metrics_endpoint) {
    telemetry::start_resource_metrics(config.checkpoint_dir.string());
    if (!*bucket) metrics::observe_checkpoint_disk(config.checkpoint_dir);
  }
  telemetry::log_info("server.starting", "tuft " TUFT_VERSION " starting",
                      {{"tuft.models", config.supported_models.size()},
                       {"tuft.telemetry.enabled", config.telemetry.enabled},
                       {"tuft.metrics_endpoint", config.telemetry.metrics_endpoint},
                       {"tuft.open_files_max", files_max}});
  warn_of_few_files(files_max, config);
  return serve_until_stopped(config, *bucket);
}

}  // namespace tuft::app
