#include "control/checkpoint_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <stdio.h>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/id.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWorkPrefix = ".tuft-";
constexpr size_t kMetadataBytesMax = 1 << 20;

// Errors of files reach clients through futures, so they name the checkpoint and not the server's path.
Error storage_error(std::string_view what, const std::string& cause) {
  telemetry::log_error("checkpoint.storage.failed", std::string(what) + ": " + cause);
  return internal_error(std::string(what) + ": the checkpoint storage of the server failed; its log says why",
                        "checkpoint_storage");
}

// Puts `from` into the place of `to` and what was there into the place of `from`, in one step where the file system
// can do that.
std::error_code exchange(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return {};
  if (errno != EINVAL && errno != ENOSYS) return {errno, std::generic_category()};
  const fs::path aside = from.string() + "-old";
  std::error_code code;
  fs::rename(to, aside, code);
  if (!code) fs::rename(from, to, code);
  if (!code) fs::rename(aside, from, code);
  return code;
}

// Times of one form sort as text.
bool is_older(const CheckpointStore::Ptr& a, const CheckpointStore::Ptr& b) {
  return std::tie(a->created_at, a->future_number, a->path.name) <
         std::tie(b->created_at, b->future_number, b->path.name);
}

}  // namespace

void CheckpointStore::scan(const PathSet& kept) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(root_, code)) {
    if (entry.is_directory(code)) scan_run(entry.path(), kept);
  }
}

void CheckpointStore::scan_run(const fs::path& run_directory, const PathSet& kept) {
  for (const CheckpointKind kind : {CheckpointKind::kTraining, CheckpointKind::kSampler}) {
    std::error_code code;
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(run_directory / checkpoint_folder(kind), code)) {
      if (!entry.is_directory(code)) continue;
      if (entry.path().filename().string().starts_with(kWorkPrefix)) {
        leftovers.push_back(entry.path());
      } else {
        scan_one(entry.path(), kind, kept);
      }
    }
    for (const fs::path& path : leftovers) discard(path);
  }
}

void CheckpointStore::scan_one(const fs::path& directory, CheckpointKind kind, const PathSet& kept) {
  auto text = read_file(directory / kMetadataFile, kMetadataBytesMax);
  auto checkpoint = text.ok() ? from_metadata_json(*text) : Result<Checkpoint>(text.error());
  if (checkpoint.ok() && (checkpoint->path.kind != kind || directory_of(checkpoint->path) != directory)) {
    checkpoint = data_loss("metadata.json names another checkpoint; was the directory renamed?");
  }
  if (!checkpoint.ok()) {
    telemetry::log_warning("checkpoint.skipped", "a checkpoint cannot be used: " + checkpoint.error().message,
                           {{"tuft.checkpoint", directory.filename().string()},
                            {"tuft.run_folder", directory.parent_path().parent_path().filename().string()}});
    return;
  }
  if (checkpoint->ephemeral && !kept.contains(checkpoint->path.str())) return discard(directory);
  checkpoint->directory = directory;
  std::string key = checkpoint->path.str();
  auto record = std::make_shared<const Checkpoint>(std::move(*checkpoint));
  MutexLock lock(mutex_);
  by_path_[std::move(key)] = std::move(record);
}

Result<CheckpointStore::Ptr> CheckpointStore::find_visible(const UserId& user, std::string_view path) const {
  TUFT_ASSIGN(const CheckpointPath parsed, parse_checkpoint_path(path));
  const std::string key = parsed.str();
  MutexLock lock(mutex_);
  const auto found = by_path_.find(key);
  if (found == by_path_.end() || (found->second->owner != user && !found->second->is_public)) {
    return not_found("checkpoint " + key + " does not exist or is not visible to you", "checkpoint_not_found");
  }
  return found->second;
}

bool CheckpointStore::exists(const CheckpointPath& path) const {
  const std::string key = path.str();
  MutexLock lock(mutex_);
  return by_path_.contains(key);
}

CheckpointStore::Ptr CheckpointStore::find(const std::string& path) const {
  MutexLock lock(mutex_);
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : found->second;
}

CheckpointStore::Ptr CheckpointStore::newest_training(const RunId& run) const {
  Ptr newest;
  MutexLock lock(mutex_);
  for (const auto& [path, checkpoint] : by_path_) {
    if (checkpoint->path.run != run || checkpoint->path.kind != CheckpointKind::kTraining) continue;
    if (newest == nullptr || checkpoint->future_number > newest->future_number) newest = checkpoint;
  }
  return newest;
}

std::vector<CheckpointStore::Ptr> CheckpointStore::run_checkpoints(const RunId& run) const {
  std::vector<Ptr> found;
  {
    MutexLock lock(mutex_);
    for (const auto& [path, checkpoint] : by_path_) {
      if (checkpoint->path.run == run && !checkpoint->ephemeral) found.push_back(checkpoint);
    }
  }
  std::sort(found.begin(), found.end(), is_older);
  return found;
}

std::vector<CheckpointStore::Ptr> CheckpointStore::owner_checkpoints(const UserId& owner) const {
  std::vector<Ptr> found;
  {
    MutexLock lock(mutex_);
    for (const auto& [path, checkpoint] : by_path_) {
      if (checkpoint->owner == owner && !checkpoint->ephemeral) found.push_back(checkpoint);
    }
  }
  std::sort(found.begin(), found.end(), [](const Ptr& a, const Ptr& b) { return is_older(b, a); });
  return found;
}

std::string CheckpointStore::free_name(const RunId& run, CheckpointKind kind, std::string_view prefix,
                                       int* counter) const {
  MutexLock lock(mutex_);
  while (true) {
    char number[16];
    std::snprintf(number, sizeof number, "%04d", (*counter)++);
    CheckpointPath path{run, kind, std::string(prefix) + number};
    if (!by_path_.contains(path.str())) return std::move(path.name);
  }
}

fs::path CheckpointStore::directory_of(const CheckpointPath& path) const {
  return root_ / run_folder(path.run) / checkpoint_folder(path.kind) / path.name;
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

Result<CheckpointStore::Published> CheckpointStore::publish(const fs::path& prepared, Checkpoint checkpoint) {
  const fs::path place = directory_of(checkpoint.path);
  checkpoint.directory = place;
  if (Status written = write_file_atomically(prepared / kMetadataFile, to_metadata_json(checkpoint)); !written.ok()) {
    return storage_error("cannot write the metadata of a checkpoint", written.error().message);
  }
  std::error_code code;
  const bool replaces = fs::exists(place, code);
  if (replaces) {
    code = exchange(prepared, place);
  } else {
    fs::rename(prepared, place, code);
  }
  if (code) return storage_error("cannot put a checkpoint into its place", code.message());
  if (Status synced = sync_directory(place.parent_path()); !synced.ok()) {
    return storage_error("cannot sync a checkpoint", synced.error().message);
  }
  auto record = std::make_shared<const Checkpoint>(std::move(checkpoint));
  std::string key = record->path.str();
  {
    MutexLock lock(mutex_);
    by_path_[std::move(key)] = record;
  }
  return Published{std::move(record), replaces ? prepared : fs::path()};
}

void CheckpointStore::discard(const fs::path& directory) const {
  const fs::path inside = directory.lexically_relative(root_);
  if (inside.empty() || *inside.begin() == ".." || inside == ".") return;
  std::error_code code;
  fs::remove_all(directory, code);
  if (code) telemetry::log_warning("checkpoint.discard.failed", "old checkpoint files stay behind: " + code.message());
}

void CheckpointStore::forget(const CheckpointPath& path) {
  const std::string key = path.str();
  MutexLock lock(mutex_);
  by_path_.erase(key);
}

}  // namespace tuft::control
