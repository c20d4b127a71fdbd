#include "app/tuft/standby.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <signal.h>
#include <utility>

#include "actor/worker_source.h"
#include "app/tuft/signals.h"
#include "app/tuft/state_store.h"
#include "app/tuft/sweeper.h"
#include "telemetry/log.h"

namespace tuft::app {
namespace {

constexpr Nanos kLookForLease = 250 * kMillisecond;
constexpr Nanos kBetweenReads = 2 * kSecond;
constexpr Nanos kReadingShare = 20;  // of the time, one part for reading
constexpr Nanos kStandbyGrace = 200 * kMillisecond;
constexpr Nanos kLookAtKeys = kSecond;

// Where no worker ever comes from.
class NoWorkers final : public actor::WorkerSource {
 public:
  void on_available(std::function<void()>) override {}
  bool available() const override { return false; }
  Result<std::unique_ptr<actor::WorkerLife>> begin(uint64_t, const std::string&) override {
    return std::unique_ptr<actor::WorkerLife>();
  }
};

config::ServerConfig with_one_place(config::ServerConfig config) {
  for (config::ModelConfig& model : config.supported_models) model.workers = 1;
  return config;
}

}  // namespace

Standby::Standby(const config::ServerConfig& config, store::Leadership& leadership)
    : config_(with_one_place(config)),
      leadership_(leadership),
      key_file_(config_),
      address_file_(config.home / "tuft_current_server") {
  for (const config::ModelConfig& model : config_.supported_models) {
    actor::Supervision supervision;
    supervision.base_model = model.model_name;
    actors_.push_back(actor::make_joined_actor(std::move(supervision), std::make_unique<NoWorkers>()));
  }
}

Standby::~Standby() {
  stop();
  if (reading_.joinable()) reading_.join();
  server_.reset();
}

// Does not wait for the thread that reads: it may be making a view of all records, or freeing them.
void Standby::stop() {
  stop_.request_stop();
  {
    MutexLock lock(mutex_);  // pause() has seen it, or is woken up
  }
  stopped_.notify_all();
  address_file_.remove();
  if (!serving_.joinable()) return;
  server_->stop(kStandbyGrace);
  serving_.join();
}

Status Standby::start(const std::string& leader) {
  TUFT_ASSIGN(auto keys, key_file_.read());
  set_keys(std::move(keys));
  {
    MutexLock lock(facts_mutex_);
    facts_.leader = leader;
    facts_.lacks_checkpoints = config_.bucket.has_value();
  }
  TUFT_ASSIGN(std::shared_ptr<control::ControlPlane> first, read_records());
  api::Server::Options options{.host = config_.host,
                               .port = config_.port,
                               .public_url = config_.public_url,
                               .limits = config_.limits,
                               .tls = config_.tls,
                               .is_first = false,
                               .standby = [this] { return facts(); }};
  options.metrics = {config_.telemetry.metrics_endpoint, config_.telemetry.metrics_token};
  TUFT_ASSIGN(server_, api::Server::create(options, *first));
  server_->replace_control(std::move(first));
  serving_ = std::thread([this] { server_->run(); });
  reading_ = std::thread([this] { keep_reading(); });
  const std::string address = http_address(config_.host, port(), !config_.tls.certificate.empty());
  if (const Status written = address_file_.write(address); !written.ok()) {
    telemetry::log_warning("server.address_file", written.error().message);
  }
  telemetry::log_info("leader.standby", "this server stands by at " + address + "; the server at " + leader + " leads",
                      {{"server.address", config_.host}, {"server.port", port()}});
  return {};
}

bool Standby::wait() {
  // Asking for the lease takes as long as the store does; a key that was removed is refused meanwhile.
  std::optional<Sweeper> keys;
  const auto look_at_keys = [&] { keys.emplace([this] { reload_changed_keys(); }, kLookAtKeys); };
  look_at_keys();
  Nanos pause = kLookForLease;
  bool could_ask = true;
  while (true) {
    const int signal = next_signal(pause);
    if (signal == SIGINT || signal == SIGTERM) return false;
    if (signal == SIGHUP) {
      keys.reset();  // one thread at a time has the file
      reload();
      look_at_keys();
    }
    const Result<store::Lease::Standing> standing = leadership_.campaign();
    if (could_ask != standing.ok()) {
      could_ask = standing.ok();
      if (!could_ask) telemetry::log_warning("leader.unknown", standing.error().message);
    }
    pause = kLookForLease;
    if (!could_ask) continue;
    if (standing->leads) return true;
    pause = std::clamp(standing->ends_in, kMillisecond, kLookForLease);
    MutexLock lock(facts_mutex_);
    facts_.leader = standing->leader;
  }
}

api::StandbyFacts Standby::facts() const {
  MutexLock lock(facts_mutex_);
  return facts_;
}

Result<std::shared_ptr<control::ControlPlane>> Standby::read_records() {
  const Nanos began = system_clock().monotonic();
  TUFT_ASSIGN(std::unique_ptr<control::Persistence> records, open_view(config_, stop_.get_token()));
  std::vector<actor::ModelActor*> ports;
  for (const auto& actor : actors_) ports.push_back(actor.get());
  std::shared_ptr<control::ControlPlane> view =
      control::ControlPlane::create(config_, ports, system_clock(), std::move(records));
  adopt(view, began);
  return view;
}

void Standby::adopt(const std::shared_ptr<control::ControlPlane>& view, Nanos read_at) {
  {
    MutexLock lock(mutex_);
    views_.add(view);
  }
  MutexLock lock(facts_mutex_);
  facts_.loaded_at = read_at;
}

// They end here, and without the lock, because the end of a view waits for its threads.
bool Standby::make_room() {
  std::vector<KeptViews::View> unused;
  MutexLock lock(mutex_);
  unused = views_.take_unused();
  return views_.has_room();
}

void Standby::keep_reading() {
  Nanos took = 0;
  bool could_read = true;
  bool has_room = true;
  while (pause(std::max(kBetweenReads, kReadingShare * took))) {
    if (has_room != make_room()) {
      has_room = !has_room;
      if (!has_room) {
        telemetry::log_warning("leader.records_unread",
                               "clients that read their answers slowly keep all former states that may be in memory; "
                               "the records are read again when one of them is done");
      }
    }
    if (!has_room) continue;
    const Nanos began = system_clock().monotonic();
    auto view = read_records();
    if (stop_.stop_requested()) return;
    took = system_clock().monotonic() - began;
    if (could_read != view.ok()) {
      could_read = view.ok();
      if (!could_read) telemetry::log_warning("leader.records_unread", view.error().message);
    }
    if (!could_read) continue;
    server_->replace_control(std::move(view).value());
  }
}

bool Standby::pause(Nanos time) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(time);
  MutexLock lock(mutex_);
  while (!stop_.stop_requested() && stopped_.wait_until(mutex_, end) != std::cv_status::timeout) {
  }
  return !stop_.stop_requested();
}

void Standby::reload_changed_keys() {
  key_file_.reload_changed([this](auto keys) { set_keys(std::move(keys)); });
}

void Standby::reload() {
  key_file_.reload([this](auto keys) { set_keys(std::move(keys)); });
  if (config_.tls.certificate.empty()) return;
  if (const Status status = server_->reload_tls(); !status.ok()) {
    telemetry::log_error("tls.reload_failed", status.error().message + "; the former certificate stays in use");
  }
}

void Standby::set_keys(std::map<std::string, std::string> keys) {
  MutexLock lock(mutex_);
  views_.set_keys(std::move(keys));
}

}  // namespace tuft::app
