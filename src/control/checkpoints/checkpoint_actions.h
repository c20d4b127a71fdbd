// Actions of a user on existing checkpoints: make public or private, set the expiry, delete, copy, download.
//
// Thread-safe. Disk work runs on the disk thread, where users take turns. `done` is called exactly once: on that
// thread, or before the call returns if the action is refused. Only the owner may change a checkpoint: an unknown one
// and one of another user both return kNotFound, but another user's public checkpoint returns kPermissionDenied.
// kResourceExhausted means that too many actions of the user are waiting. set_public() and set_ttl() write all metadata
// of the checkpoint again, so they count there, and take turns, as often as it does for its user (use_of()).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/types/checkpoint_path.h"
#include "control/types/types.h"
#include "telemetry/context.h"

namespace tuft::control {

// The tar archive of a checkpoint: adapter_config.json, adapter_model.safetensors and checkpoint_complete, as PEFT
// reads them; or one file of an external checkpoint. It stays readable until it is destroyed, even if the checkpoint is
// deleted.
class Archive {
 public:
  virtual ~Archive() = default;
  virtual int64_t size_bytes() const = 0;
  virtual std::string file_name() const = 0;
  virtual std::string_view content_type() const = 0;  // static storage
  // Reads the next piece of at most `bytes_max` bytes; an empty piece is the end. The caller waits for `done`, which is
  // called on the disk thread, before it calls read() again.
  virtual void read(size_t bytes_max, std::function<void(Result<std::string>)> done) = 0;
};

class CheckpointActions {
 public:
  using Done = std::function<void(Status)>;
  virtual ~CheckpointActions() = default;

  // Deletes a checkpoint. Samplers that use it keep their snapshot. If the store becomes unreachable, `done` gets
  // kUnavailable although the checkpoint is deleted; repeating the call then succeeds.
  virtual void remove(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace,
                      Done done) = 0;
  // Makes a checkpoint public, so that all users may load and sample it, or private.
  virtual void set_public(const UserId& user, const CheckpointPath& path, bool is_public,
                          const telemetry::SpanContext& trace, Done done) = 0;
  // Lets a checkpoint expire after `seconds` from now; none: it does not expire.
  virtual void set_ttl(const UserId& user, const CheckpointPath& path, std::optional<int64_t> seconds,
                       const telemetry::SpanContext& trace, Done done) = 0;

  // Copies a training or sampler checkpoint that the user, or the user of the access token, may read into a new run of
  // the user, with the same name. The copy is private, counts fully for the user, and does not inherit the expiry.
  // `done` gets its path. Repeating an idempotency key with the same source gives the first copy again as long as that
  // exists. kNotFound for a source that neither may read, with the same message as for one that does not exist.
  using Copied = std::function<void(Result<std::string>)>;
  virtual void copy(const UserId& user, const CopyWeights& request, const telemetry::SpanContext& trace,
                    Copied done) = 0;

  // Returns a ticket with which anybody can open the archive until `expires` (wall clock). It is signed, and becomes
  // invalid when the server restarts. For the user's own checkpoints and public ones. Persistence::available()'s error
  // while the audit of it cannot be stored.
  struct Ticket {
    std::string token;  // URL-safe
    Nanos expires = 0;
  };
  virtual Result<Ticket> archive_ticket(const UserId& user, const CheckpointPath& path) = 0;
  // Returns a ticket for each file of an external checkpoint: the two that PEFT reads, or their encryption. kNotFound
  // and Persistence::available()'s error as for an archive; kInvalidArgument for a checkpoint of another kind.
  struct FileTickets {
    std::vector<std::pair<std::string, std::string>> files;  // name, token
    Nanos expires = 0;
  };
  virtual Result<FileTickets> file_tickets(const UserId& user, const CheckpointPath& path) = 0;
  // Opens the archive or the file of a ticket. Returns kPermissionDenied for an invalid or expired ticket, and
  // kNotFound if the checkpoint no longer exists or is no longer visible to the user of the ticket.
  virtual void open_archive(std::string_view token, std::function<void(Result<std::unique_ptr<Archive>>)> done) = 0;
};

}  // namespace tuft::control
