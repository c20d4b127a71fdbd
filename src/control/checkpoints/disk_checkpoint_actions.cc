#include "control/checkpoints/disk_checkpoint_actions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "control/accounts/quota.h"
#include "control/age/encryption.h"
#include "control/checkpoints/archive.h"
#include "metrics/training.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr Nanos kSweepInterval = 2 * kSecond;
constexpr Nanos kTicketLife = 15 * 60 * kSecond;
constexpr size_t kUnconfirmedMax = 4096;
// So that others' tasks have their turns between the removals of many: a user can let thousands expire at one moment.
constexpr size_t kExpiredAtATime = 16;

void record_failure(const CheckpointPath& path, const Error& error) {
  if (!is_user_error(error.code)) {
    telemetry::log_error("checkpoint.action.failed", error.message, {{"tuft.checkpoint", path.str()}});
  }
}

}  // namespace

// Checks the owner before queueing, so that other requests do not use the queue, and again on the disk thread, where no
// other action runs. The metadata, which may be long, is written as a whole, and its user pays for it with turns.
void DiskCheckpointActions::act(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace,
                                Done done, Work work, bool writes_metadata) {
  if (Status available = parts_.persistence.available(user); !available.ok()) return done(available);
  const auto found = parts_.checkpoints.find_owned(user, path);
  if (!found.ok()) return done(found.error());
  const int64_t cost = writes_metadata ? use_of(**found).count : 1;
  auto shared_done = std::make_shared<Done>(std::move(done));
  auto task = [weak = weak_from_this(), user, path, trace, shared_done, work = std::move(work)] {
    const auto self = weak.lock();
    if (self == nullptr) return (*shared_done)(unavailable("the server is shutting down"));
    const telemetry::ContextScope scope(trace);
    auto checkpoint = self->parts_.checkpoints.find_owned(user, path);
    Status status = checkpoint.ok() ? work(*self, *checkpoint) : Status(checkpoint.error());
    if (!status.ok()) record_failure(path, status.error());
    (*shared_done)(status);
  };
  if (Status posted = parts_.disk.post(user, std::move(task), cost); !posted.ok()) (*shared_done)(posted);
}

// The record in the store is for tools; metadata.json is authoritative.
void DiskCheckpointActions::keep(const Checkpoint& checkpoint, const telemetry::SpanContext& trace) {
  if (parts_.persistence.enabled())
    parts_.persistence.write(checkpoint.owner, {parts_.persistence.put(checkpoint)}, trace);
}

// An empty `by` is the server itself.
Status DiskCheckpointActions::remove_now(const CheckpointStore::Ptr& checkpoint, std::string_view reason,
                                         const UserId& by, const telemetry::SpanContext& trace) {
  const std::string path = checkpoint->path.str();
  const std::string_view type = checkpoint_type_name(checkpoint->path.kind);
  if (Status removed = parts_.checkpoints.remove(checkpoint); !removed.ok()) {
    metrics::training().checkpoint_failures.add(
        1, {{"operation", "delete"}, {"reason", error_code_name(removed.error().code)}});
    return removed;
  }
  if (parts_.persistence.enabled() && !checkpoint->ephemeral) {
    parts_.persistence.write(checkpoint->owner, {parts_.persistence.erase(checkpoint->path)}, trace);
  }
  metrics::training().checkpoint_removed.add(1, {{"checkpoint_type", type}, {"reason", reason}});
  parts_.usage.audit({.action = by.empty() ? AuditAction::kCheckpointExpired : AuditAction::kCheckpointDeleted,
                      .user = by,
                      .owner = checkpoint->owner,
                      .session = checkpoint->session,
                      .run = checkpoint->path.run,
                      .tinker_path = path});
  telemetry::log_info("checkpoint.removed", "checkpoint removed",
                      {{"tuft.checkpoint", path}, {"tuft.checkpoint_type", type}, {"tuft.reason", reason}});
  return {};
}

void DiskCheckpointActions::remove(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace,
                                   Done done) {
  auto removed = [weak = weak_from_this(), user, path, done = std::move(done)](const Status& status) {
    const auto self = weak.lock();
    const bool gone = !status.ok() && status.error().code == ErrorCode::kNotFound;
    if (self == nullptr || (!status.ok() && !(gone && self->was_removed(user, path)))) return done(status);
    self->confirm_removed(user, path, done);
  };
  const auto work = [user, trace](DiskCheckpointActions& self, const CheckpointStore::Ptr& checkpoint) {
    return self.remove_now(checkpoint, "deleted", user, trace);
  };
  act(user, path, trace, std::move(removed), work, false);
}

void DiskCheckpointActions::confirm_removed(const UserId& user, const CheckpointPath& path, const Done& done) {
  parts_.persistence.when_durable([weak = weak_from_this(), user, path = path.str(), done](const Status& durable) {
    if (const auto self = weak.lock()) {
      MutexLock lock(self->mutex_);
      std::erase(self->unconfirmed_, std::pair(user, path));
      if (!durable.ok()) self->unconfirmed_.emplace_back(user, path);
      if (self->unconfirmed_.size() > kUnconfirmedMax) self->unconfirmed_.pop_front();
    }
    done(durable);
  });
}

bool DiskCheckpointActions::was_removed(const UserId& user, const CheckpointPath& path) const {
  const std::pair wanted(user, path.str());
  MutexLock lock(mutex_);
  return std::find(unconfirmed_.begin(), unconfirmed_.end(), wanted) != unconfirmed_.end();
}

void DiskCheckpointActions::set_public(const UserId& user, const CheckpointPath& path, bool is_public,
                                       const telemetry::SpanContext& trace, Done done) {
  const auto work = [user, trace, is_public](DiskCheckpointActions& self,
                                             const CheckpointStore::Ptr& checkpoint) -> Status {
    if (checkpoint->is_public == is_public) return {};
    TUFT_ASSIGN(
        const CheckpointStore::Ptr changed,
        self.parts_.checkpoints.update(checkpoint, [is_public](Checkpoint& one) { one.is_public = is_public; }));
    self.keep(*changed, trace);
    self.parts_.usage.audit(
        {.action = is_public ? AuditAction::kCheckpointPublished : AuditAction::kCheckpointUnpublished,
         .user = user,
         .session = changed->session,
         .run = changed->path.run,
         .tinker_path = changed->path.str()});
    telemetry::log_info("checkpoint.visibility.changed", "checkpoint made public or private",
                        {{"tuft.checkpoint", changed->path.str()}, {"tuft.public", is_public}});
    return {};
  };
  act(user, path, trace, std::move(done), work, true);
}

void DiskCheckpointActions::set_ttl(const UserId& user, const CheckpointPath& path, std::optional<int64_t> seconds,
                                    const telemetry::SpanContext& trace, Done done) {
  if (seconds && *seconds < 1) {
    return done(invalid_argument("ttl_seconds must be at least 1; null removes it", "invalid_ttl"));
  }
  const auto work = [user, trace, seconds](DiskCheckpointActions& self,
                                           const CheckpointStore::Ptr& checkpoint) -> Status {
    std::optional<Nanos> expiry;
    if (seconds) expiry = expiry_after(self.parts_.clock.wall(), *seconds);
    const auto change = [expiry](Checkpoint& one) {
      one.expires_at = expiry;
      one.servers_save = false;  // its user has decided
    };
    TUFT_ASSIGN(const CheckpointStore::Ptr changed, self.parts_.checkpoints.update(checkpoint, change));
    self.keep(*changed, trace);
    self.parts_.usage.audit({.action = AuditAction::kCheckpointTtlSet,
                             .user = user,
                             .session = changed->session,
                             .run = changed->path.run,
                             .tinker_path = changed->path.str()});
    telemetry::log_info("checkpoint.ttl.changed", "expiry of a checkpoint changed",
                        {{"tuft.checkpoint", changed->path.str()}, {"tuft.ttl_seconds", seconds.value_or(0)}});
    return {};
  };
  act(user, path, trace, std::move(done), work, true);
}

// Each ticket makes a record of the audit, so none is issued while the store cannot take more of the user.
Result<CheckpointActions::Ticket> DiskCheckpointActions::archive_ticket(const UserId& user,
                                                                        const CheckpointPath& path) {
  TUFT_TRY(parts_.persistence.available(user));
  TUFT_ASSIGN(const CheckpointStore::Ptr checkpoint, parts_.checkpoints.find_visible(user, path.str()));
  const ArchiveGrant grant{path, parts_.clock.wall() + kTicketLife, user};
  audit_download(user, *checkpoint, "archive");
  return Ticket{tickets_.issue(grant), grant.expires};
}

void DiskCheckpointActions::audit_download(const UserId& user, const Checkpoint& checkpoint, std::string_view purpose) {
  parts_.usage.audit({.action = AuditAction::kCheckpointArchived,
                      .user = user,
                      .owner = checkpoint.owner,
                      .session = checkpoint.session,
                      .run = checkpoint.path.run,
                      .tinker_path = checkpoint.path.str(),
                      .purpose = std::string(purpose)});
}

Result<CheckpointActions::FileTickets> DiskCheckpointActions::file_tickets(const UserId& user,
                                                                           const CheckpointPath& path) {
  TUFT_TRY(parts_.persistence.available(user));
  TUFT_ASSIGN(const CheckpointStore::Ptr checkpoint, parts_.checkpoints.find_readable(user, path.str()));
  if (path.kind != CheckpointKind::kExternal) {
    return invalid_argument("only external weights have addresses of files; make some with save_weights_external",
                            "not_external");
  }
  FileTickets tickets{{}, parts_.clock.wall() + kTicketLife};
  for (std::string file : external_files()) {
    if (checkpoint->encrypted) file += age::kSuffix;
    std::string token = tickets_.issue({path, tickets.expires, user, file});
    tickets.files.emplace_back(std::move(file), std::move(token));
  }
  audit_download(user, *checkpoint, "external_weights");
  return tickets;
}

void DiskCheckpointActions::open_archive(std::string_view token,
                                         std::function<void(Result<std::unique_ptr<Archive>>)> done) {
  auto grant = tickets_.check(token, parts_.clock.wall());
  if (!grant.ok()) return done(std::move(grant).error());
  const UserId user = grant->user;
  const std::string path = grant->path.str();
  const CheckpointStore::Ptr checkpoint = parts_.checkpoints.find(path);
  if (checkpoint == nullptr || (checkpoint->owner != user && !checkpoint->is_public)) {
    return done(
        not_found("checkpoint " + path + " has been deleted or is not public any more", "checkpoint_not_found"));
  }
  Result<ByteAccount::Hold> place = take_archive(user);
  if (!place.ok()) return done(place.error());
  auto shared_done = std::make_shared<decltype(done)>(std::move(done));
  const auto shared_place = std::make_shared<ByteAccount::Hold>(std::move(*place));
  const Status posted = parts_.disk.post(
      user, [weak = weak_from_this(), user, checkpoint, file = grant->file, shared_place, shared_done] {
        const auto self = weak.lock();
        if (self == nullptr) return (*shared_done)(unavailable("the server is shutting down"));
        DiskWorker& disk = self->parts_.disk;
        (*shared_done)(file.empty() ? open_tar(checkpoint, user, std::move(*shared_place), weak, disk)
                                    : open_single(checkpoint, file, user, std::move(*shared_place), weak, disk));
      });
  if (!posted.ok()) (*shared_done)(posted.error());
}

Result<ByteAccount::Hold> DiskCheckpointActions::take_archive(const UserId& user) {
  const int most = parts_.limits.archives_per_user_max;
  ByteAccount::Hold place = archives_->open(user.str());
  switch (place.grow_to(1, {.each = most, .all = parts_.limits.archives_max})) {
    case ByteAccount::Answer::kTaken:
      return place;
    case ByteAccount::Answer::kOverEach:
      return over_quota(Quota::kArchives, "you have " + std::to_string(most) + " downloads of archives in progress",
                        "finish some");
    case ByteAccount::Answer::kOverAll:
      break;
  }
  return Error{ErrorCode::kResourceExhausted,
               "the server has " + std::to_string(parts_.limits.archives_max) +
                   " downloads of archives in progress (limits.archives_max); try again later",
               "archives_max"};
}

void DiskCheckpointActions::sweep() {
  const Nanos now = parts_.clock.monotonic();
  if (now < next_sweep_ && !parts_.checkpoints.needs_clean_up()) return;
  if (now >= next_sweep_) next_sweep_ = now + kSweepInterval;
  // If the queue is full, the next sweep does it.
  (void)parts_.disk.post(UserId(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    // Those that expire while the former ones are being removed have their turn at the next sweep.
    if (!self->removes_rest_) self->remove_expired(self->parts_.clock.wall(), nullptr);
    self->parts_.checkpoints.clean_up();
  });
}

// Goes on after the last one even if that could not be removed, which only a later sweep tries again: else those that
// cannot be removed would keep the thread busy without an end, and keep the others.
void DiskCheckpointActions::remove_expired(Nanos wall, const CheckpointStore::Ptr& after) {
  const auto expired = parts_.checkpoints.lists().expired(wall, after, kExpiredAtATime);
  for (const CheckpointStore::Ptr& checkpoint : expired) {
    if (checkpoint->servers_save && parts_.is_restore_point(*checkpoint)) continue;
    const Status removed = remove_now(checkpoint, "expired", UserId(), {});
    if (!removed.ok()) record_failure(checkpoint->path, removed.error());
  }
  removes_rest_ = expired.size() == kExpiredAtATime &&
                  parts_.disk.post_rest(UserId(), [weak = weak_from_this(), wall, last = expired.back()] {
                    if (const auto self = weak.lock()) self->remove_expired(wall, last);
                  });
}

}  // namespace tuft::control
