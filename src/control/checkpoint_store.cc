#include "control/checkpoint_store.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/id.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWorkPrefix = ".tuft-";
constexpr const char* kDeletedFile = "deleted.json";
constexpr char kVersionMark = '~';  // no name holds it
constexpr size_t kMetadataBytesMax = 1 << 20;

// Errors of files reach clients through futures, so they name the checkpoint and not the server's path.
Error storage_error(std::string_view what, const std::string& cause) {
  telemetry::log_error("checkpoint.storage.failed", std::string(what) + ": " + cause);
  return internal_error(std::string(what) + ": the checkpoint storage of the server failed; its log says why",
                        "checkpoint_storage");
}

Error no_such_checkpoint(const std::string& path) {
  return not_found("checkpoint " + path + " does not exist or is not visible to you", "checkpoint_not_found");
}

// Ours, unfinished: what prepare() named, what a worker makes beside that, and what is about to be removed.
bool is_leftover(const std::string& name) {
  return name.starts_with(kWorkPrefix) || name.starts_with(std::string(".") + std::string(kWorkPrefix));
}

// "name~3" is version 3 of name, "name" the first.
int version_of(const fs::path& directory) {
  const std::string name = directory.filename().string();
  const size_t mark = name.rfind(kVersionMark);
  if (mark == name.npos) return 1;
  int version = 0;
  const auto [end, code] = std::from_chars(name.data() + mark + 1, name.data() + name.size(), version);
  return code == std::errc() && end == name.data() + name.size() ? version : 0;
}

void skip(const fs::path& directory, const std::string& why) {
  telemetry::log_warning("checkpoint.skipped", "a checkpoint cannot be used: " + why,
                         {{"tuft.checkpoint", directory.filename().string()},
                          {"tuft.run_folder", directory.parent_path().parent_path().filename().string()}});
}

// A checkpoint holds files and nothing else: a link could lead anywhere. What an interrupted write left goes.
Status check_content(const fs::path& directory) {
  std::error_code code;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (entry.symlink_status(code).type() != fs::file_type::regular) {
      return data_loss("it holds " + name + ", which is a link or no file", "checkpoint_foreign");
    }
    if (name.starts_with(std::string(kMetadataFile) + ".tmp-")) unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) fs::remove(path, code);
  return {};
}

// No restart takes the directory for a checkpoint any more.
Status mark_deleted(const fs::path& directory) {
  std::error_code code;
  fs::rename(directory / kMetadataFile, directory / kDeletedFile, code);
  if (code == std::errc::no_such_file_or_directory) return {};  // somebody removed it by hand
  if (code) return storage_error("cannot delete a checkpoint", code.message());
  if (Status synced = sync_directory(directory); !synced.ok()) {
    return storage_error("cannot delete a checkpoint", synced.error().message);
  }
  return {};
}

}  // namespace

void CheckpointStore::scan(const PathSet* kept) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(root_, code)) {
    if (entry.symlink_status(code).type() == fs::file_type::directory) scan_run(entry.path(), kept);
  }
}

void CheckpointStore::scan_run(const fs::path& run_directory, const PathSet* kept) {
  for (const CheckpointKind kind : {CheckpointKind::kTraining, CheckpointKind::kSampler}) {
    std::error_code code;
    std::vector<fs::path> leftovers;
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(run_directory / checkpoint_folder(kind), code)) {
      if (entry.symlink_status(code).type() != fs::file_type::directory) {
        skip(entry.path(), "it is a link or no directory");
      } else if (is_leftover(entry.path().filename().string()) ||
                 (fs::exists(entry.path() / kDeletedFile, code) && !fs::exists(entry.path() / kMetadataFile, code))) {
        leftovers.push_back(entry.path());
      } else {
        found.push_back(entry.path());
      }
    }
    for (const fs::path& path : leftovers) discard(path);
    std::sort(found.begin(), found.end(),
              [](const fs::path& a, const fs::path& b) { return version_of(a) > version_of(b); });
    for (const fs::path& path : found) scan_one(path, kind, kept);
  }
}

void CheckpointStore::scan_one(const fs::path& directory, CheckpointKind kind, const PathSet* kept) {
  if (Status content = check_content(directory); !content.ok()) return skip(directory, content.error().message);
  auto text = read_file(directory / kMetadataFile, kMetadataBytesMax);
  auto checkpoint = text.ok() ? from_metadata_json(*text) : Result<Checkpoint>(text.error());
  if (checkpoint.ok() &&
      (checkpoint->path.kind != kind || place_of(checkpoint->path, version_of(directory)) != directory)) {
    checkpoint = data_loss("metadata.json names another checkpoint; was the directory renamed?");
  }
  if (!checkpoint.ok()) return skip(directory, checkpoint.error().message);
  const bool unwanted = checkpoint->ephemeral && kept != nullptr && !kept->contains(checkpoint->path.str());
  if (const auto run = head(checkpoint->path.run); run && run->owner != checkpoint->owner) {
    return skip(directory, "another checkpoint of its run belongs to another user");
  }
  // A later version was there before: the server died before it could mark this one.
  if (unwanted || exists(checkpoint->path)) return discard(directory);
  add(std::move(*checkpoint), directory);
}

CheckpointStore::Ptr CheckpointStore::add(Checkpoint checkpoint, const fs::path& directory) {
  checkpoint.files =
      std::make_shared<const CheckpointFiles>(space_, directory, checkpoint.owner, checkpoint.size_bytes);
  auto record = std::make_shared<const Checkpoint>(std::move(checkpoint));
  MutexLock lock(mutex_);
  lists_.put(record);
  return record;
}

Result<CheckpointStore::Ptr> CheckpointStore::find_visible(const UserId& user, std::string_view path) const {
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

CheckpointStore::Ptr CheckpointStore::find(const std::string& path) const {
  MutexLock lock(mutex_);
  return lists_.find(path);
}

bool CheckpointStore::is_current(const Ptr& checkpoint) const {
  const Ptr current = find(checkpoint->path.str());
  return current != nullptr && current->files == checkpoint->files;
}

CheckpointStore::Ptr CheckpointStore::newest_training(const RunId& run) const {
  MutexLock lock(mutex_);
  return lists_.newest_training(run);
}

std::vector<CheckpointStore::Ptr> CheckpointStore::expired(Nanos wall) const {
  MutexLock lock(mutex_);
  return lists_.expired(wall);
}

std::optional<RunHead> CheckpointStore::head(const RunId& run) const {
  MutexLock lock(mutex_);
  return lists_.head(run);
}

std::optional<RunHead> CheckpointStore::public_head(const RunId& run) const {
  MutexLock lock(mutex_);
  return lists_.public_head(run);
}

Page<CheckpointStore::Ptr> CheckpointStore::of_run(const RunId& run, const PageRequest& page) const {
  MutexLock lock(mutex_);
  return lists_.of_run(run, page);
}

Page<CheckpointStore::Ptr> CheckpointStore::of_owner(const UserId& owner, const PageRequest& page) const {
  MutexLock lock(mutex_);
  return lists_.of_owner(owner, page);
}

std::vector<CheckpointStore::Ptr> CheckpointStore::samplers_after(const UserId& owner, const Ptr& place,
                                                                  size_t count_max) const {
  MutexLock lock(mutex_);
  return lists_.samplers_after(owner, place, count_max);
}

std::vector<RunHead> CheckpointStore::runs_after(const UserId& owner, const CheckpointLists::RunPlace& place,
                                                 size_t count_max) const {
  MutexLock lock(mutex_);
  return lists_.runs_after(owner, place, count_max);
}

int64_t CheckpointStore::count_runs(const UserId& owner) const {
  MutexLock lock(mutex_);
  return lists_.count_runs(owner);
}

std::vector<RunHead> CheckpointStore::runs_of_session(const UserId& owner, const SessionId& session) const {
  MutexLock lock(mutex_);
  return lists_.runs_of_session(owner, session);
}

std::string CheckpointStore::free_name(const RunId& run, CheckpointKind kind, std::string_view prefix,
                                       int* counter) const {
  MutexLock lock(mutex_);
  while (true) {
    char number[16];
    std::snprintf(number, sizeof number, "%04d", (*counter)++);
    CheckpointPath path{run, kind, std::string(prefix) + number};
    if (lists_.find(path.str()) == nullptr) return std::move(path.name);
  }
}

fs::path CheckpointStore::place_of(const CheckpointPath& path, int version) const {
  const std::string suffix = version > 1 ? kVersionMark + std::to_string(version) : std::string();
  return root_ / run_folder(path.run) / checkpoint_folder(path.kind) / (path.name + suffix);
}

Result<fs::path> CheckpointStore::prepare(const RunId& run, CheckpointKind kind) const {
  const fs::path parent = root_ / run_folder(run) / checkpoint_folder(kind);
  std::error_code code;
  const bool created = fs::create_directories(parent, code);
  if (code) return storage_error("cannot make room for a checkpoint", code.message());
  if (created) {
    for (const fs::path& path : {root_, root_ / run_folder(run)}) {
      if (Status synced = sync_directory(path); !synced.ok()) {
        return storage_error("cannot sync the checkpoint directory", synced.error().message);
      }
    }
  }
  return parent / (std::string(kWorkPrefix) + random_uuid());
}

Result<CheckpointStore::Ptr> CheckpointStore::publish(const fs::path& prepared, Checkpoint checkpoint) {
  const Ptr replaced = find(checkpoint.path.str());
  if (Status written = write_file_atomically(prepared / kMetadataFile, to_metadata_json(checkpoint)); !written.ok()) {
    return storage_error("cannot write the metadata of a checkpoint", written.error().message);
  }
  int version = replaced == nullptr ? 1 : version_of(replaced->files->directory()) + 1;
  std::error_code code;
  while (fs::exists(fs::symlink_status(place_of(checkpoint.path, version), code))) ++version;
  const fs::path place = place_of(checkpoint.path, version);
  fs::rename(prepared, place, code);
  if (code) return storage_error("cannot put a checkpoint into its place", code.message());
  if (Status synced = sync_directory(place.parent_path()); !synced.ok()) {
    discard(place);  // or a restart would find what was reported failed
    return storage_error("cannot sync a checkpoint", synced.error().message);
  }
  Ptr published = add(std::move(checkpoint), place);
  if (replaced != nullptr) {
    // Where this fails, the next start goes by the version.
    (void)mark_deleted(replaced->files->directory());
    replaced->files->abandon();
  }
  return published;
}

void CheckpointStore::abandon(const fs::path& prepared) const {
  if (prepared.empty()) return;
  discard(prepared);
  const std::string beside = "." + prepared.filename().string();
  std::vector<fs::path> left;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(prepared.parent_path(), code)) {
    if (entry.path().filename().string().starts_with(beside)) left.push_back(entry.path());
  }
  for (const fs::path& path : left) discard(path);
}

Result<CheckpointStore::Ptr> CheckpointStore::update(const Ptr& checkpoint,
                                                     const std::function<void(Checkpoint&)>& change) {
  const Ptr current = find(checkpoint->path.str());
  if (current == nullptr || current->files != checkpoint->files) return no_such_checkpoint(checkpoint->path.str());
  Checkpoint changed = *current;
  change(changed);
  const Status written = write_file_atomically(changed.files->directory() / kMetadataFile, to_metadata_json(changed));
  if (!written.ok()) return storage_error("cannot write the metadata of a checkpoint", written.error().message);
  auto record = std::make_shared<const Checkpoint>(std::move(changed));
  MutexLock lock(mutex_);
  lists_.put(record);
  return Ptr(record);
}

Status CheckpointStore::remove(const Ptr& checkpoint) {
  if (!is_current(checkpoint)) return no_such_checkpoint(checkpoint->path.str());
  TUFT_TRY(mark_deleted(checkpoint->files->directory()));
  checkpoint->files->abandon();
  const std::string key = checkpoint->path.str();
  MutexLock lock(mutex_);
  lists_.erase(key);
  return {};
}

void CheckpointStore::forget(const CheckpointPath& path) {
  const std::string key = path.str();
  MutexLock lock(mutex_);
  const Ptr found = lists_.find(key);
  if (found == nullptr) return;
  found->files->abandon();
  found->files->discount();
  lists_.erase(key);
}

void CheckpointStore::clean_up() const {
  for (const fs::path& directory : space_->take_unneeded()) discard(directory);
}

// In two steps: one that is interrupted leaves what the next start knows as a leftover.
void CheckpointStore::discard(const fs::path& directory) const {
  const fs::path inside = directory.lexically_relative(root_);
  if (inside.empty() || *inside.begin() == ".." || inside == ".") return;
  std::error_code code;
  fs::path doomed = directory;
  if (!is_leftover(directory.filename().string())) {
    doomed = directory.parent_path() / (std::string(kWorkPrefix) + random_uuid());
    fs::rename(directory, doomed, code);
    if (code == std::errc::no_such_file_or_directory) return;
    if (code) doomed = directory;
  }
  fs::remove_all(doomed, code);
  if (code) telemetry::log_warning("checkpoint.discard.failed", "old checkpoint files stay behind: " + code.message());
}

}  // namespace tuft::control
