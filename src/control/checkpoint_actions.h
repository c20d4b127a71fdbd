// What an owner does with checkpoints that exist: publish, expire, delete, take away as an archive.
//
// Thread-safe. What touches the disk happens on the disk thread, where users take turns; `done` is called exactly once:
// on that thread, or, where it is refused, before the call returns. Only the owner may act: unknown and foreign
// checkpoints are the same kNotFound (a public one of somebody else is kPermissionDenied: its existence is no secret).
// kResourceExhausted where too much of the user's waits already.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "control/checkpoint_path.h"
#include "control/types.h"
#include "telemetry/context.h"

namespace tuft::control {

// The tar of one checkpoint: adapter_config.json, adapter_model.safetensors and checkpoint_complete, as PEFT reads
// them. What it reads stays readable until it is gone, also when the checkpoint is deleted meanwhile.
class Archive {
 public:
  virtual ~Archive() = default;
  virtual int64_t size_bytes() const = 0;
  virtual std::string file_name() const = 0;
  // The next piece, at most `bytes_max`; empty: it is all read. One call at a time; `done` on the disk thread.
  virtual void read(size_t bytes_max, std::function<void(Result<std::string>)> done) = 0;
};

class CheckpointActions {
 public:
  using Done = std::function<void(Status)>;
  virtual ~CheckpointActions() = default;

  // Samplers that use it keep their snapshot. Where the store went away meanwhile, so that `done` gets kUnavailable, it
  // is deleted all the same; asked again, that is no error.
  virtual void remove(const UserId& user, const CheckpointPath& path, const telemetry::SpanContext& trace,
                      Done done) = 0;
  // May be loaded and sampled by everybody, or not any more.
  virtual void set_public(const UserId& user, const CheckpointPath& path, bool is_public,
                          const telemetry::SpanContext& trace, Done done) = 0;
  // Counted from now; none: it stays.
  virtual void set_ttl(const UserId& user, const CheckpointPath& path, std::optional<int64_t> seconds,
                       const telemetry::SpanContext& trace, Done done) = 0;

  // A ticket that opens the archive to whoever shows it, until `expires` (wall clock). Signed: not to be guessed or
  // changed. Kept nowhere, so it dies with the server. The owner's checkpoints and public ones.
  struct Ticket {
    std::string token;  // URL-safe
    Nanos expires = 0;
  };
  virtual Result<Ticket> archive_ticket(const UserId& user, const CheckpointPath& path) = 0;
  // kPermissionDenied for a ticket that is not ours or has expired, kNotFound where the checkpoint is gone.
  virtual void open_archive(std::string_view token, std::function<void(Result<std::unique_ptr<Archive>>)> done) = 0;
};

}  // namespace tuft::control
