// Checkpoint actions on the checkpoint directory, and the removal of expired checkpoints.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/accounts/access_tokens.h"
#include "control/accounts/usage.h"
#include "control/checkpoints/archive_ticket.h"
#include "control/checkpoints/checkpoint_actions.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/persistence/persistence.h"
#include "control/queues/disk_worker.h"

namespace tuft::control {

// Thread-safe. Must be owned by a shared_ptr: actions that still wait for the disk at its end are not done.
class DiskCheckpointActions final : public CheckpointActions,
                                    public std::enable_shared_from_this<DiskCheckpointActions> {
 public:
  struct Parts {
    std::shared_ptr<void> owner;  // keeps the following references valid
    const config::Limits& limits;
    const Clock& clock;
    CheckpointStore& checkpoints;
    DiskWorker& disk;
    Persistence& persistence;
    Usage& usage;
    AccessTokens& tokens;  // used by copy() only, before it returns
    // Called on the disk thread. What the server has saved by itself does not expire while this is true for it.
    std::function<bool(const Checkpoint&)> is_restore_point;
  };
  explicit DiskCheckpointActions(const Parts& parts) : parts_(parts) {}

  void remove(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace, Done done) override;
  void set_public(const UserId& user, const CheckpointPath& path, bool is_public, const telemetry::SpanContext& trace,
                  Done done) override;
  void set_ttl(const UserId& user, const CheckpointPath& path, std::optional<int64_t> seconds,
               const telemetry::SpanContext& trace, Done done) override;
  void copy(const UserId& user, const CopyWeights& request, const telemetry::SpanContext& trace, Copied done) override;
  Result<Ticket> archive_ticket(const UserId& user, const CheckpointPath& path) override;
  Result<FileTickets> file_tickets(const UserId& user, const CheckpointPath& path) override;
  void open_archive(std::string_view token, std::function<void(Result<std::unique_ptr<Archive>>)> done) override;

  // Returns the number of archives that the user has open.
  int64_t open_archives(const UserId& user) const { return archives_->held_by(user.str()); }

  // Removes expired checkpoints and unused files. To be called about every 250 ms; it acts every few seconds.
  void sweep();

 private:
  using Work = std::function<Status(DiskCheckpointActions&, const CheckpointStore::Ptr&)>;

  // The input of the disk thread for a copy.
  struct CopyPlan {
    UserId user;
    UserId token_user;  // empty: none
    CheckpointPath source, target;
    std::string project_id;
    std::optional<int64_t> ttl_seconds;
    telemetry::SpanContext trace;

    // A public checkpoint shows its weights, not what its owner noted about it.
    bool shows_notes_of(const Checkpoint& its) const { return its.owner == user || its.owner == token_user; }
  };
  Result<CheckpointStore::Ptr> find_source(const CopyPlan& plan) const;
  // Returns the error if the copy cannot be made, and the path of a copy that exists.
  Result<std::optional<std::string>> check_copy(const CopyPlan& plan) const;
  Result<std::string> copy_now(const CopyPlan& plan);
  void record_copy(const CopyPlan& plan, const Checkpoint& source, const Checkpoint& made);

  void act(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace, Done done, Work work,
           bool writes_metadata);
  Status remove_now(const CheckpointStore::Ptr& checkpoint, std::string_view reason, const UserId& by,
                    const telemetry::SpanContext& trace);
  // Calls `done` when a completed remove() is durable.
  void confirm_removed(const UserId& user, const CheckpointPath& path, const Done& done);
  bool was_removed(const UserId& user, const CheckpointPath& path) const TUFT_EXCLUDES(mutex_);
  void audit_download(const UserId& user, const Checkpoint& checkpoint, std::string_view purpose);
  // Returns the place of one more open archive.
  Result<ByteAccount::Hold> take_archive(const UserId& user);
  // [disk] Removes some that have expired, after `after` (null: from the first), and queues the removal of the rest.
  void remove_expired(Nanos wall, const CheckpointStore::Ptr& after);
  void keep(const Checkpoint& checkpoint, const telemetry::SpanContext& trace);

  const Parts parts_;
  const ArchiveTickets tickets_;
  const std::shared_ptr<ByteAccount> archives_ = std::make_shared<ByteAccount>();  // open ones, by user; not bytes
  std::atomic<Nanos> next_sweep_ = 0;                                              // monotonic
  // A task that goes on with remove_expired() is queued. Confined to the disk thread.
  bool removes_rest_ = false;
  mutable Mutex mutex_;
  // Deleted checkpoints (owner and path) whose remove() was answered kUnavailable; the newest ones.
  std::deque<std::pair<UserId, std::string>> unconfirmed_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
