// Checkpoint actions on the checkpoint directory, and the end of those whose time is over.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/archive_ticket.h"
#include "control/checkpoint_actions.h"
#include "control/checkpoint_store.h"
#include "control/disk_worker.h"
#include "control/persistence.h"
#include "control/usage.h"

namespace tuft::control {

// Thread-safe. Held by a shared_ptr: what waits for the disk when it ends is not done.
class DiskCheckpointActions final : public CheckpointActions,
                                    public std::enable_shared_from_this<DiskCheckpointActions> {
 public:
  struct Parts {
    std::shared_ptr<void> owner;  // of all that follows
    const Clock& clock;
    CheckpointStore& checkpoints;
    DiskWorker& disk;
    Persistence& persistence;
    Usage& usage;
  };
  explicit DiskCheckpointActions(const Parts& parts);
  ~DiskCheckpointActions() override;

  void remove(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace, Done done) override;
  void set_public(const UserId& user, const CheckpointPath& path, bool is_public, const telemetry::SpanContext& trace,
                  Done done) override;
  void set_ttl(const UserId& user, const CheckpointPath& path, std::optional<int64_t> seconds,
               const telemetry::SpanContext& trace, Done done) override;
  Result<Ticket> archive_ticket(const UserId& user, const CheckpointPath& path) override;
  void open_archive(std::string_view token, std::function<void(Result<std::unique_ptr<Archive>>)> done) override;

  // Removes the expired and the files that nobody uses any more. Call it about every 250 ms; it acts every few seconds.
  void sweep();

 private:
  using Work = std::function<Status(DiskCheckpointActions&, const CheckpointStore::Ptr&)>;

  void act(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace, Done done, Work work);
  Status remove_now(const CheckpointStore::Ptr& checkpoint, std::string_view reason, const UserId& by,
                    const telemetry::SpanContext& trace);
  // Ends a remove() that has happened: tells it once it is durable.
  void confirm_removed(const UserId& user, const CheckpointPath& path, const Done& done);
  bool was_removed(const UserId& user, const CheckpointPath& path) const TUFT_EXCLUDES(mutex_);
  void remove_expired();
  void keep(const Checkpoint& checkpoint, const telemetry::SpanContext& trace);

  const Parts parts_;
  const ArchiveTickets tickets_;
  std::atomic<Nanos> next_sweep_ = 0;  // monotonic
  mutable Mutex mutex_;
  // Deleted, while whoever asked was told kUnavailable: the newest, by owner and path.
  std::deque<std::pair<UserId, std::string>> unconfirmed_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
