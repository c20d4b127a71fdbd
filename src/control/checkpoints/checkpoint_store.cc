#include "control/checkpoints/checkpoint_store.h"

#include <cstdio>
#include <utility>

#include "base/file.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;

// So that saves have their turns between the removals of many.
constexpr size_t kRemovalsAtATime = 16;

Error no_such_checkpoint(const std::string& path) {
  return not_found("checkpoint " + path + " does not exist or is not visible to you", "checkpoint_not_found");
}

}  // namespace

void CheckpointStore::scan(const PathSet* kept) {
  storage_->scan([this, kept](CheckpointStorage::Found found) { take(std::move(found), kept); });
}

void CheckpointStore::take(CheckpointStorage::Found found, const PathSet* kept) {
  if (!found.checkpoint.ok()) return skip(found, found.checkpoint.error().message);
  Checkpoint& checkpoint = *found.checkpoint;
  const bool unwanted = checkpoint.ephemeral && kept != nullptr && !kept->contains(checkpoint.path.str());
  if (const auto run = lists_.head(checkpoint.path.run); run && run->owner != checkpoint.owner) {
    return skip(found, "another checkpoint of its run belongs to another user");
  }
  // A newer one is already in the index: the server was killed before it retired this one.
  if (unwanted || exists(checkpoint.path)) {
    if (only_looks_) return;
    if (storage_->retire(found.place, checkpoint).ok()) storage_->discard(found.place);
    return;
  }
  add(std::move(checkpoint), found.place);
}

void CheckpointStore::skip(const CheckpointStorage::Found& found, const std::string& why) const {
  if (only_looks_) return;
  const fs::path name(found.name);
  telemetry::log_warning("checkpoint.skipped", "a checkpoint cannot be used: " + why,
                         {{"tuft.checkpoint", found.place.filename().string()},
                          {"tuft.run_folder", name.parent_path().parent_path().filename().string()}});
}

CheckpointStore::Ptr CheckpointStore::add(Checkpoint checkpoint, const fs::path& place) {
  checkpoint.files =
      std::make_shared<const CheckpointFiles>(space_, storage_, place, checkpoint.owner, use_of(checkpoint));
  auto record = std::make_shared<const Checkpoint>(std::move(checkpoint));
  lists_.put(record);
  return record;
}

Result<CheckpointStore::Ptr> CheckpointStore::find_visible(const UserId& user, std::string_view path) const {
  TUFT_ASSIGN(Ptr found, find_readable(user, path));
  if (found->path.kind != CheckpointKind::kExternal) return found;
  return invalid_argument("checkpoint " + found->path.str() +
                              " is for download only (external_weights_urls); use one that save_state or "
                              "save_weights_for_sampler made",
                          "external_checkpoint");
}

Result<CheckpointStore::Ptr> CheckpointStore::find_readable(const UserId& user, std::string_view path) const {
  TUFT_ASSIGN(const CheckpointPath parsed, parse_checkpoint_path(path));
  const std::string key = parsed.str();
  Ptr found = find(key);
  if (found == nullptr || (found->owner != user && !found->is_public)) return no_such_checkpoint(key);
  return found;
}

Result<CheckpointStore::Ptr> CheckpointStore::find_owned(const UserId& user, const CheckpointPath& path) const {
  const std::string key = path.str();
  Ptr found = find(key);
  if (found == nullptr || found->ephemeral || (found->owner != user && !found->is_public)) {
    return no_such_checkpoint(key);
  }
  if (found->owner != user) {
    return Error{ErrorCode::kPermissionDenied,
                 "checkpoint " + key + " is public but not yours: only its owner may do that", "not_the_owner"};
  }
  return found;
}

bool CheckpointStore::exists(const CheckpointPath& path) const {
  return find(path.str()) != nullptr;
}

bool CheckpointStore::is_current(const Ptr& checkpoint) const {
  const Ptr current = find(checkpoint->path.str());
  return current != nullptr && current->files == checkpoint->files;
}

std::string CheckpointStore::free_name(const RunId& run, CheckpointKind kind, std::string_view prefix,
                                       int* counter) const {
  while (true) {
    char number[16];
    std::snprintf(number, sizeof number, "%04d", (*counter)++);
    CheckpointPath path{run, kind, std::string(prefix) + number};
    if (!exists(path)) return std::move(path.name);
  }
}

Result<CheckpointStore::Ptr> CheckpointStore::commit(const fs::path& prepared, Checkpoint checkpoint) {
  const Ptr replaced = find(checkpoint.path.str());
  TUFT_ASSIGN(const fs::path place, storage_->commit(prepared, checkpoint, replaced.get()));
  Ptr committed = add(std::move(checkpoint), place);
  if (replaced != nullptr) replaced->files->abandon();
  return committed;
}

Result<CheckpointStore::Ptr> CheckpointStore::update(const Ptr& checkpoint,
                                                     const std::function<void(Checkpoint&)>& change) {
  const Ptr current = find(checkpoint->path.str());
  if (current == nullptr || current->files != checkpoint->files) return no_such_checkpoint(checkpoint->path.str());
  Checkpoint changed = *current;
  change(changed);
  TUFT_TRY(storage_->update(changed.files->directory(), *current, changed));
  auto record = std::make_shared<const Checkpoint>(std::move(changed));
  lists_.put(record);
  return Ptr(record);
}

Status CheckpointStore::remove(const Ptr& checkpoint) {
  if (!is_current(checkpoint)) return no_such_checkpoint(checkpoint->path.str());
  TUFT_TRY(storage_->retire(checkpoint->files->directory(), *checkpoint));
  checkpoint->files->abandon();
  (void)lists_.take(checkpoint->path.str(), checkpoint->files.get());
  return {};
}

void CheckpointStore::forget(const CheckpointPath& path, const std::shared_ptr<const CheckpointFiles>& files) {
  if (files != nullptr && lists_.take(path.str(), files.get())) files->abandon();
}

void CheckpointStore::clean_up() {
  for (const fs::path& place : space_->take_unneeded(kRemovalsAtATime)) storage_->discard(place);
  storage_->clean_up();
}

std::string name_of(const CheckpointPath& path) {
  return run_folder(path.run) + "/" + std::string(checkpoint_folder(path.kind)) + "/" + path.name;
}

// Clients see these errors through futures, so the message has no path of the server.
Error storage_error(std::string_view what, const Error& cause) {
  telemetry::log_error("checkpoint.storage.failed", std::string(what) + ": " + cause.message);
  if (cause.reason == kDiskFull) return disk_is_full();
  // A bucket that does not answer may answer later; its messages are for clients, too.
  if (is_retryable(cause.code)) return {cause.code, std::string(what) + ": " + cause.message, cause.reason};
  return internal_error(std::string(what) + ": the checkpoint storage of the server failed; its log says why",
                        "checkpoint_storage");
}

Error disk_is_full() {
  return {ErrorCode::kResourceExhausted,
          "the disk of the server's checkpoints is full; nothing was lost that had been saved. Delete checkpoints that "
          "you do not need, or ask the server's operator for room, and save again",
          std::string(kDiskFull)};
}

Error without_path(Error error, const std::filesystem::path& root) {
  const std::string text = root.string();
  if (text.empty()) return error;
  for (size_t at = error.message.find(text); at != std::string::npos; at = error.message.find(text, at)) {
    error.message.replace(at, text.size(), "<checkpoint_dir>");
  }
  return error;
}

}  // namespace tuft::control
