// Copies of checkpoints.
#include <array>
#include <string>
#include <utility>

#include <openssl/sha.h>

#include "base/id.h"
#include "base/text.h"
#include "control/accounts/quota.h"
#include "control/checkpoints/disk_checkpoint_actions.h"
#include "metrics/training.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

// Returns the id of the run of a copy, in the form of other ids. It is the same for a repeated request, also after a
// restart; users cannot meet each other's.
RunId run_of_copy(const UserId& user, const CopyWeights& request) {
  std::string id = random_uuid();
  if (!request.idempotency_key.empty()) {
    std::string text;
    for (const std::string& part : {user.str(), request.idempotency_key, request.source_path}) {
      text += std::to_string(part.size()) + ':' + part;
    }
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
    std::string digits;
    append_hex(digits, {reinterpret_cast<const char*>(digest.data()), digest.size()});
    size_t next = 0;
    for (char& c : id) {
      if (c != '-') c = digits[next++];
    }
  }
  return RunId(id + ":train:0");
}

SessionId session_of(const RunId& run) {
  return SessionId(run.str().substr(0, run.str().find(':')));
}

}  // namespace

void DiskCheckpointActions::copy(const UserId& user, const CopyWeights& request, const telemetry::SpanContext& trace,
                                 Copied done) {
  if (Status available = parts_.persistence.available(user); !available.ok()) return done(available.error());
  auto source = parse_checkpoint_path(request.source_path);
  if (!source.ok()) return done(std::move(source).error());
  CopyPlan plan{.user = user,
                .token_user = {},
                .source = *source,
                .target = {run_of_copy(user, request), source->kind, source->name},
                .project_id = request.project_id,
                .ttl_seconds = request.ttl_seconds,
                .trace = trace};
  if (!request.access_token.empty()) {
    auto owner = parts_.tokens.user_of(user, request.access_token);
    if (!owner.ok()) return done(std::move(owner).error());
    plan.token_user = *owner;
  }
  auto checked = check_copy(plan);
  if (!checked.ok()) return done(std::move(checked).error());
  if (*checked) return done(std::move(**checked));
  const auto shared_done = std::make_shared<Copied>(std::move(done));
  const Status posted = parts_.disk.post(user, [weak = weak_from_this(), plan = std::move(plan), shared_done] {
    const auto self = weak.lock();
    if (self == nullptr) return (*shared_done)(unavailable("the server is shutting down"));
    const telemetry::ContextScope scope(plan.trace);
    (*shared_done)(self->copy_now(plan));
  });
  if (!posted.ok()) (*shared_done)(posted.error());
}

Result<CheckpointStore::Ptr> DiskCheckpointActions::find_source(const CopyPlan& plan) const {
  auto found = parts_.checkpoints.find_visible(plan.user, plan.source.str());
  if (found.ok() || plan.token_user.empty()) return found;
  return parts_.checkpoints.find_visible(plan.token_user, plan.source.str());
}

Result<std::optional<std::string>> DiskCheckpointActions::check_copy(const CopyPlan& plan) const {
  TUFT_ASSIGN(const CheckpointStore::Ptr source, find_source(plan));
  const std::string target = plan.target.str();
  if (parts_.checkpoints.find(target) != nullptr) return std::optional(target);
  const CheckpointUse limit{parts_.limits.checkpoint_bytes_per_user_max, parts_.limits.checkpoints_per_user_max};
  CheckpointUse more = use_of(*source);
  if (!plan.shows_notes_of(*source)) more.count = 1;
  auto over = over_checkpoints(parts_.checkpoints.used_by(plan.user), more, limit);
  if (over) return std::move(*over);
  return std::optional<std::string>();
}

// Runs on the disk thread, which does one thing at a time, so a repetition finds the copy.
Result<std::string> DiskCheckpointActions::copy_now(const CopyPlan& plan) {
  TUFT_ASSIGN(std::optional<std::string> existing, check_copy(plan));
  if (existing) return std::move(*existing);
  TUFT_ASSIGN(const CheckpointStore::Ptr source, find_source(plan));
  const Nanos begin = parts_.clock.monotonic();
  Checkpoint copy = *source;
  copy.path = plan.target;
  copy.owner = plan.user;
  copy.session = session_of(plan.target.run);
  copy.project_id = plan.project_id;
  copy.created_at = iso_time(parts_.clock.wall());
  copy.is_public = false;
  copy.ephemeral = false;
  copy.servers_save = false;
  copy.expires_at.reset();
  if (plan.ttl_seconds) copy.expires_at = expiry_after(parts_.clock.wall(), *plan.ttl_seconds);
  copy.future_number = 0;
  copy.seq_id.reset();
  copy.files = nullptr;
  if (!plan.shows_notes_of(*source)) {
    copy.user_metadata.clear();
    copy.own_metadata.clear();
  }
  CheckpointStorage& storage = parts_.checkpoints.storage();
  const auto cloned = storage.clone(source->files->directory(), plan.target.run, plan.target.kind);
  auto made = cloned.ok() ? parts_.checkpoints.commit(*cloned, std::move(copy)) : cloned.error();
  if (!made.ok()) {
    if (cloned.ok()) storage.discard(*cloned);
    metrics::training().checkpoint_failures.add(
        1, {{"operation", "copy"}, {"reason", error_code_name(made.error().code)}});
    return std::move(made).error();
  }
  metrics::training().checkpoint_duration.record(to_seconds(parts_.clock.monotonic() - begin), {{"operation", "copy"}});
  record_copy(plan, *source, **made);
  return (*made)->path.str();
}

void DiskCheckpointActions::record_copy(const CopyPlan& plan, const Checkpoint& source, const Checkpoint& made) {
  keep(made, plan.trace);
  const std::string_view type = checkpoint_type_name(made.path.kind);
  OperationKeys keys;
  keys.session = made.session;
  keys.run = made.path.run;
  keys.base_model = made.base_model;
  parts_.usage.add(plan.user, keys, UsageKind::kCheckpoint, 1);
  parts_.usage.audit({.action = AuditAction::kCheckpointLoaded,
                      .user = plan.user,
                      .owner = source.owner,
                      .session = source.session,
                      .run = source.path.run,
                      .tinker_path = source.path.str(),
                      .purpose = "copy"});
  parts_.usage.audit({.action = AuditAction::kCheckpointSaved,
                      .user = plan.user,
                      .session = made.session,
                      .run = made.path.run,
                      .tinker_path = made.path.str(),
                      .purpose = "copy"});
  metrics::training().checkpoints_saved.add(1, {{"checkpoint_type", type}});
  metrics::training().checkpoint_size_bytes.record(static_cast<double>(made.size_bytes), {{"checkpoint_type", type}});
  telemetry::log_info(
      "checkpoint.copied", "checkpoint copied",
      {{"tuft.checkpoint", made.path.str()}, {"tuft.checkpoint_type", type}, {"tuft.size_bytes", made.size_bytes}});
}

}  // namespace tuft::control
