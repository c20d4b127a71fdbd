#include "actor/worker_registry.h"

#include <algorithm>
#include <optional>
#include <poll.h>
#include <utility>

#include "actor/actor_tracer.h"
#include "actor/channel.h"
#include "base/check.h"
#include "base/utf8.h"
#include "metrics/workers.h"
#include "telemetry/log.h"

namespace tuft::actor {
namespace {

constexpr size_t kTextMax = 256;
constexpr size_t kLauncherEntriesMax = 16;

// The worker holds the token, so it is not a stranger; but what it says is shown, so it must be short.
std::string shortened(const std::string& text) {
  size_t size = 0;
  while (size < text.size()) {
    const size_t character = utf8_length(std::string_view(text).substr(size));
    if (character == 0 || size + character > kTextMax) break;
    size += character;
  }
  return text.substr(0, size);
}

WorkerRow row_of(const worker::v1::JoinRequest& request, const std::string& address) {
  WorkerRow row{.worker_id = shortened(request.worker_id()),
                .state = WorkerState::kStandby,
                .joined = true,
                .host = shortened(request.host()),
                .address = address,
                .version = shortened(request.version()),
                .pid = request.pid(),
                .memory_bytes = request.memory_bytes(),
                .cores = request.cores()};
  for (const auto& [key, value] : request.launcher()) {
    if (row.launcher.size() == kLauncherEntriesMax) break;
    row.launcher.emplace(shortened(key), shortened(value));
  }
  return row;
}

void count_join(std::string_view result) {
  metrics::workers().joins.add(1, {{"result", result}});
}

}  // namespace

// Those that stand by, the oldest first.
struct WorkerRegistry::Place {
  struct Standby {
    WorkerRow row;
    std::unique_ptr<join::Connection> connection;
    bool holds_adapters = false;
  };

  struct OfSource {
    std::function<void()> wake;
    std::string former;  // the id of the last worker at its place; empty: there was none
  };

  explicit Place(JoinableModel joinable) : model(std::move(joinable)) {}

  using Standbys = std::deque<Standby>;

  // Returns the source at whose place the worker, which comes back with its adapters, served last; or null.
  const void* former_place(const Standby& worker) const TUFT_REQUIRES(mutex) {
    if (!worker.holds_adapters) return nullptr;
    for (const auto& [source, of] : sources) {
      if (of.former == worker.row.worker_id) return source;
    }
    return nullptr;
  }

  // Returns the one whose turn it is at the place of `source`, or the end. The first in each of these groups: the
  // worker that served there before, those that hold adapters, those that have read their weights, the others. One that
  // served at another place is left to it. If the source `is_patient`, only the first group comes, or the second one if
  // no worker has served there.
  Standbys::iterator turn_at(const void* source, bool is_patient) TUFT_REQUIRES(mutex) {
    int groups = 4;
    if (is_patient) groups = sources[source].former.empty() ? 2 : 1;
    auto first = standbys.end();
    for (auto each = standbys.begin(); each != standbys.end(); ++each) {
      const void* place = former_place(*each);
      if (place != nullptr && place != source) continue;
      const int group = place != nullptr ? 0 : each->holds_adapters ? 1 : each->connection->heard() ? 2 : 3;
      if (group >= groups) continue;
      first = each;
      groups = group;
    }
    return first;
  }

  const JoinableModel model;
  const std::shared_ptr<WorkerRows> rows = std::make_shared<WorkerRows>();
  Mutex mutex;
  Standbys standbys TUFT_GUARDED_BY(mutex);
  bool closed TUFT_GUARDED_BY(mutex) = false;
  size_t joining TUFT_GUARDED_BY(mutex) = 0;
  std::map<const void*, OfSource> sources TUFT_GUARDED_BY(mutex);
};

namespace {

class JoinedLife final : public WorkerLife {
 public:
  // `lost` is called when the connection has ended without being closed here.
  JoinedLife(WorkerRow row, std::unique_ptr<join::Connection> connection, bool is_back, std::function<void()> lost)
      : row_(std::move(row)), connection_(std::move(connection)), is_back_(is_back), lost_(std::move(lost)) {}

  uint64_t row() const override { return row_.number; }
  pid_t pid() const override { return static_cast<pid_t>(row_.pid); }
  const std::string& host() const override { return row_.host; }
  bool is_back() const override { return is_back_; }
  Nanos last_sign() const override { return connection_->last_sign(); }
  int ended_fd() const override { return connection_->ended_fd(); }
  std::shared_ptr<grpc::Channel> connect() override { return adopt_channel(connection_->take_descriptor()); }
  void ask_to_end() override { connection_->close(); }
  void kill() override { connection_->close(); }
  std::string reap() override {
    pollfd ended{connection_->ended_fd(), POLLIN, 0};
    while (::poll(&ended, 1, -1) < 0) {
    }
    if (connection_->end() != join::End::kClosed) lost_();
    return "on " + row_.host + " " + join::describe(connection_->end());
  }

 private:
  const WorkerRow row_;
  const std::unique_ptr<join::Connection> connection_;
  const bool is_back_;
  const std::function<void()> lost_;
};

}  // namespace

class WorkerRegistry::Source final : public WorkerSource {
 public:
  // `patience`: see RegistryOptions. `patient_until`: of the start.
  Source(std::shared_ptr<Place> place, Nanos patience, Nanos patient_until)
      : place_(std::move(place)), patience_(patience), patient_until_(patient_until) {}
  ~Source() override {
    MutexLock lock(place_->mutex);
    place_->sources.erase(this);
  }

  void on_available(std::function<void()> wake) override {
    MutexLock lock(place_->mutex);
    place_->sources[this].wake = std::move(wake);
  }
  bool available() const override {
    MutexLock lock(place_->mutex);
    return place_->turn_at(this, is_patient()) != place_->standbys.end();
  }
  bool has_loaded() const override {
    MutexLock lock(place_->mutex);
    const auto next = place_->turn_at(this, false);
    return next != place_->standbys.end() && next->connection->heard();
  }
  Result<std::unique_ptr<WorkerLife>> begin(uint64_t, const std::string&) override {
    MutexLock lock(place_->mutex);
    const auto at = place_->turn_at(this, is_patient());
    if (at == place_->standbys.end()) return std::unique_ptr<WorkerLife>();
    Place::Standby next = std::move(*at);
    place_->standbys.erase(at);
    const std::string& id = next.row.worker_id;
    const bool is_back = std::exchange(place_->sources[this].former, id) == id;
    auto lost = [this] { patient_until_ = system_clock().monotonic() + patience_; };
    return std::unique_ptr<WorkerLife>(
        std::make_unique<JoinedLife>(std::move(next.row), std::move(next.connection), is_back, std::move(lost)));
  }

 private:
  bool is_patient() const { return system_clock().monotonic() < patient_until_; }

  const std::shared_ptr<Place> place_;
  const Nanos patience_;
  Nanos patient_until_;
};

WorkerRegistry::WorkerRegistry(RegistryOptions options) : options_(std::move(options)) {
  for (const JoinableModel& model : options_.models) places_.emplace(model.base_model, std::make_shared<Place>(model));
}

WorkerRegistry::~WorkerRegistry() = default;

std::unique_ptr<WorkerSource> WorkerRegistry::source(const std::string& base_model) {
  const Nanos now = system_clock().monotonic();
  return std::make_unique<Source>(places_.at(base_model), options_.patience,
                                  now + (options_.expects_holders ? options_.patience : 0));
}

std::shared_ptr<WorkerRows> WorkerRegistry::rows(const std::string& base_model) const {
  return places_.at(base_model)->rows;
}

void WorkerRegistry::close() {
  for (const auto& [name, place] : places_) {
    MutexLock lock(place->mutex);
    place->closed = true;
    place->standbys.clear();
  }
}

Status WorkerRegistry::check(const worker::v1::JoinRequest& request, const Place& place) const {
  if (request.version() != options_.version) {
    return failed_precondition("the server is tuft " + options_.version + " and the worker tuft " +
                               shortened(request.version()) + "; both must be the same");
  }
  if (request.worker_id().empty() || request.worker_id().size() > kTextMax) {
    return invalid_argument("worker_id must have 1 to 256 bytes");
  }
  if (request.config_sha256() != place.model.config_sha256) {
    return failed_precondition("the config.json of the worker's " + place.model.base_model +
                               " is not that of the server; give both the same model directory");
  }
  return {};
}

worker::v1::JoinResponse WorkerRegistry::admit(const worker::v1::JoinRequest& request, const std::string& address) {
  worker::v1::JoinResponse refusal;
  const auto place = places_.find(request.base_model());
  if (place == places_.end()) {
    std::string known;
    for (const auto& [name, each] : places_) known += (known.empty() ? "" : ", ") + name;
    refusal.set_error("no base model of this name has worker: joined in the server's configuration; those are: " +
                      known);
  } else if (const Status checked = check(request, *place->second); !checked.ok()) {
    refusal.set_error(checked.error().message);
  } else {
    return accept(request, address, place->second);
  }
  count_join("refused");
  telemetry::log_warning("worker.join_refused", "a worker was refused: " + refusal.error(),
                         {{"tuft.worker.host", shortened(request.host())}, {"client.address", address}});
  return refusal;
}

worker::v1::JoinResponse WorkerRegistry::accept(const worker::v1::JoinRequest& request, const std::string& address,
                                                const std::shared_ptr<Place>& place) {
  worker::v1::JoinResponse response;
  const auto later = [&](std::string why) {
    count_join("full");
    response.set_error(std::move(why));
    response.set_may_retry(true);
    return response;
  };
  MutexLock lock(mutex_);
  if (joining_.contains(request.worker_id())) return later("this worker is joining already");
  {
    MutexLock of_place(place->mutex);
    if (place->closed) return later("this server stops");
    if (place->standbys.size() + place->joining >= static_cast<size_t>(options_.standbys_max)) {
      return later("enough workers stand by for " + place->model.base_model);
    }
    ++place->joining;
  }
  auto span =
      actor_tracer().start_span("worker.join", {.attributes = {{"tuft.base_model", place->model.base_model},
                                                               {"tuft.worker.id", shortened(request.worker_id())},
                                                               {"tuft.worker.host", shortened(request.host())},
                                                               {"tuft.worker.pid", request.pid()},
                                                               {"client.address", address}},
                                                .parent = {}});
  for (const std::string& flag : place->model.flags) response.add_flags(flag);
  response.set_telemetry(options_.telemetry);
  response.set_proof_file(options_.proof_file);
  response.set_proof(options_.proof);
  response.set_epoch(options_.epoch);
  response.set_keep_milliseconds(options_.keep / kMillisecond);
  response.set_bucket(options_.bucket);
  if (span.context().valid()) response.set_traceparent(telemetry::to_traceparent(span.context()));
  joining_.emplace(request.worker_id(),
                   Joining{place, row_of(request, address), std::move(span), request.adapters() > 0});
  return response;
}

std::function<void(join::End)> WorkerRegistry::connected(const std::string& worker_id,
                                                         std::unique_ptr<join::Connection> connection) {
  std::optional<Joining> joined;
  {
    MutexLock lock(mutex_);
    const auto found = joining_.find(worker_id);
    TUFT_CHECK(found != joining_.end(), "only a worker that was admitted connects");
    joined.emplace(std::move(found->second));
    joining_.erase(found);
  }
  const std::shared_ptr<Place> place = joined->place;
  WorkerRow& row = joined->row;
  row.number = place->rows->add(row);
  count_join("joined");
  telemetry::log_info("worker.joined", "the worker on " + row.host + " has joined for " + place->model.base_model,
                      {{"tuft.base_model", place->model.base_model},
                       {"tuft.worker.id", row.worker_id},
                       {"tuft.worker.host", row.host},
                       {"tuft.worker.pid", row.pid},
                       {"client.address", row.address}});
  const uint64_t number = row.number;
  MutexLock lock(place->mutex);
  --place->joining;
  if (place->closed) return [](join::End) {};
  place->standbys.push_back({std::move(row), std::move(connection), joined->holds_adapters});
  for (const auto& [source, of] : place->sources) {
    if (of.wake) of.wake();
  }
  return [place, number](join::End end) {
    std::optional<Place::Standby> gone;
    {
      MutexLock of_place(place->mutex);
      const auto found = std::find_if(place->standbys.begin(), place->standbys.end(),
                                      [&](const Place::Standby& each) { return each.row.number == number; });
      if (found == place->standbys.end()) return;  // it serves, and who watches it sees its end
      gone.emplace(std::move(*found));
      place->standbys.erase(found);
    }
    const std::string how = join::describe(end);
    place->rows->set(number, WorkerState::kDead, how);
    telemetry::log_warning("worker.standby_lost", "the worker on " + gone->row.host + ", which stood by, " + how,
                           {{"tuft.base_model", place->model.base_model},
                            {"tuft.worker.id", gone->row.worker_id},
                            {"tuft.worker.host", gone->row.host},
                            {"tuft.reason", how}});
  };
}

void WorkerRegistry::gave_up(const std::string& worker_id) {
  MutexLock lock(mutex_);
  const auto found = joining_.find(worker_id);
  if (found == joining_.end()) return;
  count_join("gave_up");
  found->second.span.record_error(unavailable("the worker was gone before it had the answer", "worker_died"));
  MutexLock of_place(found->second.place->mutex);
  --found->second.place->joining;
  joining_.erase(found);
}

void WorkerRegistry::refused(std::string_view result, const std::string& address) {
  count_join(result);
  // Strangers do not fill the log.
  const Nanos now = system_clock().monotonic();
  {
    MutexLock lock(mutex_);
    if (now < next_warning_) return;
    next_warning_ = now + kSecond;
  }
  telemetry::log_warning("worker.join_failed",
                         "a connection to join.port failed before it joined (" + std::string(result) + ")",
                         {{"client.address", address}, {"tuft.reason", result}});
}

}  // namespace tuft::actor
