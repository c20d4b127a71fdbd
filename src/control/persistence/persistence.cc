#include "control/persistence/persistence.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "control/persistence/config_signature.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::control {
namespace {

constexpr std::string_view kSeparator = "::";
constexpr std::string_view kSession = "session";
constexpr std::string_view kRun = "training_run";
constexpr std::string_view kRunMetadata = "run_metadata";
constexpr std::string_view kSampler = "sampling_session";
constexpr std::string_view kCustomLoss = "custom_loss";
constexpr std::string_view kFuture = "future";
constexpr std::string_view kResult = "result";
constexpr std::string_view kUsage = "usage";
constexpr std::string_view kAudit = "audit";
constexpr std::string_view kSignature = "config_signature";
constexpr size_t kClearGroup = 1000;
constexpr int kSweepsBetweenProbes = 3;
constexpr Nanos kCloseBudget = 5 * kSecond;

// Escapes the separator as TuFT does, so that no part of a key looks like two.
std::string escaped(std::string_view part) {
  std::string text(part);
  for (size_t at = text.find(kSeparator); at != std::string::npos; at = text.find(kSeparator, at)) {
    text.replace(at, kSeparator.size(), "__SEP__");
  }
  return text;
}

std::string prefix_of(const std::string& name_space) {
  return escaped(name_space) + std::string(kSeparator);
}

// Returns true for the record of a part of an object, such as a checkpoint of a run.
bool is_part(std::string_view key, size_t prefix_size) {
  return key.find(kSeparator, prefix_size) != std::string_view::npos;
}

size_t bytes_of(const store::Write& write) {
  size_t bytes = 0;
  for (const store::Change& change : write.changes)
    bytes += change.key.size() + (change.value ? change.value->size() : 0);
  return bytes;
}

// Returns the error for clients. The address and the answer of the store are only logged.
Error away(const Error& cause) {
  return unavailable(
      "the server cannot store its state at the moment (" + cause.reason + ") and accepts no new work; try again later",
      "store_unavailable");
}

}  // namespace

Persistence::Persistence() = default;

Persistence::Persistence(std::unique_ptr<store::KeyValue> store, const config::PersistenceConfig& config)
    : store_(std::move(store)),
      prefix_(prefix_of(config.name_space)),
      future_ttl_(config.future_ttl_seconds ? std::optional(*config.future_ttl_seconds * kSecond) : std::nullopt) {}

Persistence::~Persistence() {
  if (store_ != nullptr) store_->close(kCloseBudget);
}

// ---- starting

Result<std::unique_ptr<Persistence>> Persistence::open(std::unique_ptr<store::KeyValue> store,
                                                       const config::ServerConfig& config) {
  std::unique_ptr<Persistence> persistence(new Persistence(std::move(store), config.persistence));
  TUFT_TRY(persistence->load(config));
  return persistence;
}

Result<std::unique_ptr<Persistence>> Persistence::open_view(std::unique_ptr<store::KeyValue> store,
                                                            const config::ServerConfig& config,
                                                            const std::stop_token& stop) {
  std::unique_ptr<Persistence> persistence(new Persistence(std::move(store), config.persistence));
  persistence->is_view_ = true;
  const std::stop_callback stop_reading(stop, [&opened = *persistence->store_] { opened.close(0); });
  TUFT_TRY(persistence->load_view(config, stop));
  return persistence;
}

Status Persistence::load_view(const config::ServerConfig& config, const std::stop_token& stop) {
  TUFT_ASSIGN(const std::optional<std::string> stored, store::get_and_wait(*store_, prefix_ + std::string(kSignature)));
  if (!stored) return {};  // the leader has not written yet
  TUFT_TRY(check_signature(*stored, config, store_->name()));
  return load_records(stop);
}

Status Persistence::load(const config::ServerConfig& config) {
  const std::string signature_key = prefix_ + std::string(kSignature);
  TUFT_ASSIGN(const std::optional<std::string> stored, store::get_and_wait(*store_, signature_key));
  if (stored) {
    TUFT_TRY(check_signature(*stored, config, store_->name()));
  } else {
    TUFT_ASSIGN(const std::vector<store::Entry> strays, store::scan_keys_and_wait(*store_, prefix_));
    if (!strays.empty()) {
      return failed_precondition(store_->name() + ": namespace \"" + config.persistence.name_space + "\" holds " +
                                     std::to_string(strays.size()) +
                                     " records but no config_signature, so another program made them. Choose another "
                                     "persistence.namespace, or "
                                     "remove them with `tuft clear persistence`",
                                 "config_signature");
    }
  }
  TUFT_TRY(load_records({}));
  return store::write_and_wait(*store_, {.changes = {{signature_key, make_signature(config)}}});
}

Status Persistence::load_records(const std::stop_token& stop) {
  telemetry::Span span = telemetry::get_tracer("tuft.persistence").start_span("persistence.restore", {.parent = {}});
  std::vector<RunMetadataRecord> metadata;
  const std::vector<RecordKind> kinds = {
      kind_of<SessionRecord>(kSession, session_from_json, state_.sessions),
      kind_of<RunRecord>(kRun, run_from_json, state_.runs),
      kind_of<RunMetadataRecord>(kRunMetadata, run_metadata_from_json, metadata),
      kind_of<SamplerRecord>(kSampler, sampler_from_json, state_.samplers),
      kind_of<CustomLossRecord>(kCustomLoss, custom_loss_from_json, state_.custom_losses),
      kind_of<FutureRecord>(kFuture, future_from_json, state_.futures),
      kind_of<UsageRecord>(kUsage, usage_from_json, state_.usage),
      kind_of<AuditRecord>(kAudit, audit_from_json, state_.audit)};
  store::Prefixes prefixes;
  for (const RecordKind& kind : kinds) prefixes.push_back(kind.prefix);
  TUFT_ASSIGN(std::vector<store::Entry> entries, store::scan_and_wait(*store_, prefixes, span.context()));
  const std::string of_futures = key(kFuture, "");
  state_.futures.reserve(static_cast<size_t>(std::count_if(
      entries.begin(), entries.end(), [&](const store::Entry& entry) { return entry.key.starts_with(of_futures); })));
  for (store::Entry& entry : entries) {
    if (stop.stop_requested()) return unavailable("the records are not needed any more", "store_closed");
    const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const RecordKind& one) { return entry.key.starts_with(one.prefix); });
    if (is_part(entry.key, kind->prefix.size())) continue;
    const Status read = kind->read(entry.value);
    std::string().swap(entry.value);  // not all records are in memory twice
    if (read.ok()) continue;
    // The record stays in the store for inspection.
    ++state_.unreadable;
    if (is_view_) continue;
    telemetry::log_error("persistence.record.unreadable", read.error().message,
                         {{"tuft.store.key", std::string_view(entry.key)}});
  }
  give_metadata(std::move(metadata), state_.runs);
  span.set_attribute("tuft.records", state_.sessions.size() + state_.runs.size() + state_.samplers.size() +
                                         state_.custom_losses.size() + state_.futures.size() + state_.usage.size() +
                                         state_.audit.size());
  return {};
}

template <typename Record>
Persistence::RecordKind Persistence::kind_of(std::string_view kind, Result<Record> (*read)(std::string_view),
                                             std::vector<Record>& records) const {
  return {key(kind, ""), [read, &records](std::string_view text) -> Status {
            TUFT_ASSIGN(Record record, read(text));
            records.push_back(std::move(record));
            return {};
          }};
}

Result<size_t> Persistence::clear(store::KeyValue& store, const std::string& name_space) {
  TUFT_ASSIGN(const std::vector<store::Entry> entries, store::scan_keys_and_wait(store, prefix_of(name_space)));
  store::Write write;
  for (const store::Entry& entry : entries) {
    write.changes.push_back({entry.key, std::nullopt});
    if (write.changes.size() < kClearGroup) continue;
    TUFT_TRY(store::write_and_wait(store, std::exchange(write, {})));
  }
  if (!write.changes.empty()) TUFT_TRY(store::write_and_wait(store, std::move(write)));
  return entries.size();
}

// ---- keys

std::string Persistence::key(std::string_view kind, std::string_view id) const {
  return prefix_ + std::string(kind) + std::string(kSeparator) + escaped(id);
}

store::Change Persistence::put(const SessionRecord& record) const {
  return {key(kSession, record.id.str()), to_json(record)};
}
store::Change Persistence::put(const RunRecord& record) const {
  return {key(kRun, record.id.str()), to_json(record)};
}
store::Change Persistence::put(const RunMetadataRecord& record) const {
  return {key(kRunMetadata, record.id.str()), to_json(record)};
}
store::Change Persistence::put(const SamplerRecord& record) const {
  return {key(kSampler, record.id.str()), to_json(record)};
}
store::Change Persistence::put(const CustomLossRecord& record) const {
  return {key(kCustomLoss, record.id), to_json(record)};
}
std::vector<store::Change> Persistence::put(const FutureRecord& record) const {
  std::vector<store::Change> changes;
  changes.push_back({key(kFuture, record.request.str()), to_json(record), future_ttl_});
  const auto* protobuf = record.value == nullptr ? nullptr : std::get_if<ProtobufResult>(record.value.get());
  if (protobuf != nullptr) changes.push_back({key(kResult, record.request.str()), protobuf->bytes, future_ttl_});
  return changes;
}
store::Change Persistence::put(const Checkpoint& checkpoint) const {
  store::Change change = erase(checkpoint.path);
  change.value = to_json(checkpoint);
  return change;
}
store::Change Persistence::put(const UsageRecord& record, Nanos time_to_live) const {
  return {key(kUsage, std::to_string(record.number)), to_json(record), time_to_live};
}
store::Change Persistence::put(const AuditRecord& record, Nanos time_to_live) const {
  return {key(kAudit, std::to_string(record.number)), to_json(record), time_to_live};
}
store::Change Persistence::erase(const SessionId& id) const {
  return {key(kSession, id.str()), std::nullopt};
}
store::Change Persistence::erase(const RunId& id) const {
  return {key(kRun, id.str()), std::nullopt};
}
store::Change Persistence::erase_metadata(const RunId& id) const {
  return {key(kRunMetadata, id.str()), std::nullopt};
}
store::Change Persistence::erase(const SamplerId& id) const {
  return {key(kSampler, id.str()), std::nullopt};
}
store::Change Persistence::erase(const RequestId& id) const {
  return {key(kFuture, id.str()), std::nullopt};
}
store::Change Persistence::erase_result(const RequestId& id) const {
  return {key(kResult, id.str()), std::nullopt};
}
store::Change Persistence::erase_custom_loss(const std::string& id) const {
  return {key(kCustomLoss, id), std::nullopt};
}
store::Change Persistence::erase(const CheckpointPath& path) const {
  const auto part = [&]() -> std::string_view {
    switch (path.kind) {
      case CheckpointKind::kTraining:
        return "::ckpt::";
      case CheckpointKind::kSampler:
        return "::sampler_ckpt::";
      case CheckpointKind::kExternal:
        return "::external_ckpt::";
    }
    return "::ckpt::";
  };
  return {key(kRun, path.run.str()) + std::string(part()) + escaped(path.name), std::nullopt};
}

// ---- writing

void Persistence::write(const UserId& user, std::vector<store::Change> changes, const telemetry::SpanContext& trace,
                        std::function<void()> done) {
  if (!enabled() || is_view_) {
    if (done) done();
    return;
  }
  auto pending = std::make_shared<Pending>();
  const auto puts = [](const store::Change& change) { return change.value.has_value(); };
  pending->makes_room = std::none_of(changes.begin(), changes.end(), puts);
  pending->user = user;
  pending->write = {std::move(changes), trace};
  pending->done = std::move(done);
  pending->bytes = bytes_of(pending->write);
  MutexLock lock(mutex_);
  size_t* const of_user = user.empty() ? nullptr : &bytes_by_user_[user];
  pending_.push_back(pending);  // before anything is counted, because there may be no memory for it
  bytes_ += pending->bytes;
  if (of_user != nullptr) *of_user += pending->bytes;
  ++unsent_;
  if (unsent_ == 1) send_unsent_locked();  // else those before it wait for room, and it stays behind them
}

// Called under the lock, so that the store receives the writes in order. The store only queues them. Returns false if
// its queue is full. That is no failure: the store works, and there is room again when it has answered some.
bool Persistence::send_locked(const PendingPtr& pending) {
  pending->state = Pending::State::kSent;
  const Status accepted =
      store_->write(pending->write, [this, pending](const Status& status) { on_written(pending, status); });
  if (accepted.ok()) {
    ++sent_;
  } else if (accepted.error().reason == "store_queue") {
    pending->state = Pending::State::kWaiting;
    return false;
  } else {
    note_failure_locked(pending, accepted.error());
  }
  return true;
}

// Sends in order what was never sent, until the store has no more room. Then it waits for half of the answers: a try
// copies the write, which may be large.
void Persistence::send_unsent_locked() {
  if (sent_ > send_at_) return;
  while (unsent_ > 0 && !stalled_) {
    if (!send_locked(pending_[pending_.size() - unsent_])) {
      send_at_ = sent_ / 2;
      return;
    }
    --unsent_;
  }
  send_at_ = SIZE_MAX;
}

// A write that may succeed later is repeated. A write that never can is given up, because otherwise nothing behind it
// would ever be durable.
void Persistence::note_failure_locked(const PendingPtr& pending, const Error& error) {
  const bool given_up = error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kPayloadTooLarge;
  pending->state = given_up ? Pending::State::kWritten : Pending::State::kFailed;
  if (!given_up) {
    stalled_ = error;  // the newest one: a store that is reached again may have no memory
    return;
  }
  pending->done = [error, trace = pending->write.trace, done = std::move(pending->done)] {
    const telemetry::ContextScope scope(trace);
    telemetry::log_error("persistence.write.lost", error.message, {{"error.type", error.reason}});
    if (done) done();
  };
}

void Persistence::on_written(const PendingPtr& pending, const Status& status) {
  std::vector<std::function<void()>> calls;
  {
    MutexLock lock(mutex_);
    --sent_;
    if (status.ok()) {
      pending->state = Pending::State::kWritten;
    } else {
      note_failure_locked(pending, status.error());
    }
    if (pending == probe_ && pending->state == Pending::State::kWritten) go_on_locked();
    send_unsent_locked();
    calls = take_finished_locked();
  }
  changed_.notify_all();
  for (const auto& call : calls) call();
}

// Returns the callbacks that are due now. Call them without the lock.
std::vector<std::function<void()>> Persistence::take_finished_locked() {
  std::vector<std::function<void()>> calls;
  while (!pending_.empty() && pending_.front()->state == Pending::State::kWritten) {
    if (pending_.front()->done) calls.push_back(std::move(pending_.front()->done));
    forget_bytes_locked(*pending_.front());
    pending_.pop_front();
    ++durable_;
  }
  std::optional<Error> error;
  if (stalled_) error = away(*stalled_);
  while (!barriers_.empty() && (error || barriers_.front().after <= durable_)) {
    const bool reached = barriers_.front().after <= durable_;
    calls.push_back(
        [done = std::move(barriers_.front().done), status = reached ? Status() : Status(*error)] { done(status); });
    barriers_.pop_front();
  }
  return calls;
}

void Persistence::forget_bytes_locked(const Pending& pending) {
  bytes_ -= pending.bytes;
  const auto own = bytes_by_user_.find(pending.user);
  if (own == bytes_by_user_.end()) return;
  own->second -= pending.bytes;
  if (own->second == 0) bytes_by_user_.erase(own);
}

void Persistence::read_result(const RequestId& id, const telemetry::SpanContext& trace,
                              std::function<void(Result<std::string>)> done) {
  const auto unread = [](const Error& cause) {
    return unavailable("the server cannot read this result at the moment (" + cause.reason + "); try again later",
                       "store_unavailable");
  };
  if (!enabled()) return done(unread(unavailable("", "store_closed")));
  const auto shared = std::make_shared<std::function<void(Result<std::string>)>>(std::move(done));
  const Status accepted =
      store_->get(key(kResult, id.str()), trace, [shared, unread](Result<std::optional<std::string>> found) {
        if (!found.ok()) return (*shared)(unread(found.error()));
        if (*found) return (*shared)(std::move(**found));
        (*shared)(Error{ErrorCode::kGone, "the result was dropped: it is not in the store any more", "future_gone"});
      });
  if (!accepted.ok()) (*shared)(unread(accepted.error()));
}

Status Persistence::available() const {
  if (!enabled()) return {};
  {
    MutexLock lock(mutex_);
    if (stalled_) return away(*stalled_);
  }
  const Status health = store_->health();
  return health.ok() ? health : Status(away(health.error()));
}

Status Persistence::available(const UserId& user) const {
  TUFT_TRY(available());
  MutexLock lock(mutex_);
  const auto own = bytes_by_user_.find(user);
  const size_t bytes = own == bytes_by_user_.end() ? 0 : own->second;
  const size_t parts = bytes_ > kPendingBytesMax ? std::max<size_t>(bytes_by_user_.size(), 2) : 2;
  if (bytes <= kPendingBytesMax / parts) return {};
  return Error{ErrorCode::kResourceExhausted,
               "the server has not stored " + std::to_string(bytes) + " bytes of your results yet, and " +
                   std::to_string(kPendingBytesMax / parts) + " may wait; try again in a moment",
               "store_behind"};
}

void Persistence::when_durable(std::function<void(Status)> done) {
  Status status;
  {
    MutexLock lock(mutex_);
    if (stalled_ && !pending_.empty()) {
      status = away(*stalled_);
    } else if (!pending_.empty()) {
      barriers_.push_back({durable_ + pending_.size(), std::move(done)});
      return;
    }
  }
  done(status);
}

void Persistence::sweep() {
  if (!enabled()) return;
  std::vector<std::function<void()>> calls;
  {
    MutexLock lock(mutex_);
    stalled_ ? probe_locked() : send_unsent_locked();
    calls = take_finished_locked();  // also of writes that the store refused at once
  }
  for (const auto& call : calls) call();
}

// Sends one write alone to test whether the store accepts writes again; reading may work while writing does not. It
// waits until all writes are answered, so that none overtakes one that is sent again. Afterwards all are sent again,
// although some behind the failure were written: the newest value of a key must be written last.
void Persistence::probe_locked() {
  if (sent_ > 0) return;
  if (pending_.empty()) return go_on_locked();
  if (stalled_->reason == "not_leader") return;  // no write of this server will ever be accepted again
  if (sweeps_until_probe_-- > 0) return;
  sweeps_until_probe_ = kSweepsBetweenProbes;
  for (const PendingPtr& pending : pending_) {
    pending->state = Pending::State::kWaiting;
    if (pending->makes_room && stalled_->reason == store::kOutOfMemory) erase_ahead_locked(pending);
  }
  probe_ = pending_.front();
  unsent_ = pending_.size() - 1;
  if (!send_locked(probe_)) return;                               // reads fill the queue: a later sweep tries again
  if (probe_->state == Pending::State::kWritten) go_on_locked();  // it was given up
}

// What is to be erased may wait behind a write that there is no memory for. It is erased now, and again in its turn, so
// that the last change of each key is the newest one all the same.
void Persistence::erase_ahead_locked(const PendingPtr& pending) {
  const Status accepted = store_->write(pending->write, [this, pending](const Status& status) {
    MutexLock lock(mutex_);
    pending->makes_room = !status.ok();
  });
  if (accepted.ok()) pending->makes_room = false;
}

void Persistence::go_on_locked() {
  stalled_.reset();
  probe_.reset();
  sweeps_until_probe_ = 0;
  send_at_ = SIZE_MAX;
  send_unsent_locked();
}

void Persistence::close(Nanos budget) {
  if (!enabled()) return;
  size_t left = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(budget);
  {
    MutexLock lock(mutex_);
    while (!pending_.empty() && !stalled_) {
      if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) break;
    }
    left = pending_.size();
  }
  store_->close(std::max<Nanos>(0, (end - std::chrono::steady_clock::now()).count()));
  if (left > 0) {
    telemetry::log_error("persistence.incomplete",
                         "the server ended before all of its state was written; no client got an answer that depends "
                         "on what is missing",
                         {{"tuft.records", left}});
  }
}

}  // namespace tuft::control
