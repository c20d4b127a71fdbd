#include "control/checkpoints/checkpoint_store.h"

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
constexpr char kVersionMark = '~';  // not allowed in a name
constexpr size_t kMetadataBytesMax = 1 << 20;

// Clients see these errors through futures, so the message has no path of the server.
Error storage_error(std::string_view what, const Error& cause) {
  telemetry::log_error("checkpoint.storage.failed", std::string(what) + ": " + cause.message);
  if (cause.reason == kDiskFull) return disk_is_full();
  return internal_error(std::string(what) + ": the checkpoint storage of the server failed; its log says why",
                        "checkpoint_storage");
}

Error no_such_checkpoint(const std::string& path) {
  return not_found("checkpoint " + path + " does not exist or is not visible to you", "checkpoint_not_found");
}

// Returns true for unfinished directories: those of prepare(), temporary ones of a worker, and those being removed.
bool is_leftover(const std::string& name) {
  return name.starts_with(kWorkPrefix) || name.starts_with(std::string(".") + std::string(kWorkPrefix));
}

// "name~3" is version 3 of "name"; without a mark it is version 1. Returns 0 for other marks.
int version_of(const fs::path& directory) {
  const std::string name = directory.filename().string();
  const size_t mark = name.rfind(kVersionMark);
  if (mark == name.npos) return 1;
  int version = 0;
  const auto [end, code] = std::from_chars(name.data() + mark + 1, name.data() + name.size(), version);
  return code == std::errc() && end == name.data() + name.size() ? version : 0;
}

// A checkpoint may contain regular files only, because a link could lead anywhere. Removes what an interrupted write
// left.
Status check_content(const fs::path& directory) {
  std::error_code code;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (entry.symlink_status(code).type() != fs::file_type::regular) {
      return data_loss("it holds " + name + ", which is not a regular file", "checkpoint_foreign");
    }
    if (name.starts_with(std::string(kMetadataFile) + ".tmp-")) unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) fs::remove(path, code);
  return {};
}

// After this, a restart does not read the directory as a checkpoint.
Status mark_deleted(const fs::path& directory) {
  std::error_code code;
  fs::rename(directory / kMetadataFile, directory / kDeletedFile, code);
  if (code == std::errc::no_such_file_or_directory) return {};  // removed by hand
  if (code) return storage_error("cannot delete a checkpoint", file_error("rename", kMetadataFile, code.value()));
  if (Status synced = sync_directory(directory); !synced.ok()) {
    return storage_error("cannot delete a checkpoint", synced.error());
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

void CheckpointStore::skip(const fs::path& directory, const std::string& why) {
  const std::string name = directory.filename().string();
  skipped_.insert((directory.parent_path() / name.substr(0, name.rfind(kVersionMark))).string());
  telemetry::log_warning(
      "checkpoint.skipped", "a checkpoint cannot be used: " + why,
      {{"tuft.checkpoint", name}, {"tuft.run_folder", directory.parent_path().parent_path().filename().string()}});
}

bool CheckpointStore::is_unreadable(std::string_view path) const {
  const auto parsed = parse_checkpoint_path(path);
  return parsed.ok() && skipped_.contains(directory_of(*parsed, 1).string());
}

void CheckpointStore::scan_run(const fs::path& run_directory, const PathSet* kept) {
  for (const CheckpointKind kind : kAllCheckpointKinds) {
    std::error_code code;
    std::vector<fs::path> leftovers;
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(run_directory / checkpoint_folder(kind), code)) {
      if (entry.symlink_status(code).type() != fs::file_type::directory) {
        skip(entry.path(), "it is a link or not a directory");
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
      (checkpoint->path.kind != kind || directory_of(checkpoint->path, version_of(directory)) != directory)) {
    checkpoint = data_loss("metadata.json names another checkpoint; was the directory renamed?");
  }
  if (!checkpoint.ok()) return skip(directory, checkpoint.error().message);
  const bool unwanted = checkpoint->ephemeral && kept != nullptr && !kept->contains(checkpoint->path.str());
  if (const auto run = lists_.head(checkpoint->path.run); run && run->owner != checkpoint->owner) {
    return skip(directory, "another checkpoint of its run belongs to another user");
  }
  // A later version is already in the index: the server was killed before it marked this one as replaced.
  if (unwanted || exists(checkpoint->path)) return discard(directory);
  add(std::move(*checkpoint), directory);
}

CheckpointStore::Ptr CheckpointStore::add(Checkpoint checkpoint, const fs::path& directory) {
  checkpoint.files = std::make_shared<const CheckpointFiles>(space_, directory, checkpoint.owner, use_of(checkpoint));
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

fs::path CheckpointStore::directory_of(const CheckpointPath& path, int version) const {
  const std::string suffix = version > 1 ? kVersionMark + std::to_string(version) : std::string();
  return root_ / run_folder(path.run) / checkpoint_folder(path.kind) / (path.name + suffix);
}

Result<fs::path> CheckpointStore::prepare(const RunId& run, CheckpointKind kind) const {
  const fs::path parent = root_ / run_folder(run) / checkpoint_folder(kind);
  std::error_code code;
  const bool created = fs::create_directories(parent, code);
  if (code)
    return storage_error("cannot make room for a checkpoint", file_error("create", "a directory", code.value()));
  if (created) {
    for (const fs::path& path : {root_, root_ / run_folder(run)}) {
      if (Status synced = sync_directory(path); !synced.ok()) {
        return storage_error("cannot sync the checkpoint directory", synced.error());
      }
    }
  }
  return parent / (std::string(kWorkPrefix) + random_uuid());
}

Result<CheckpointStore::Ptr> CheckpointStore::commit(const fs::path& prepared, Checkpoint checkpoint) {
  const Ptr replaced = find(checkpoint.path.str());
  if (Status written = write_file_atomically(prepared / kMetadataFile, to_metadata_json(checkpoint)); !written.ok()) {
    return storage_error("cannot write the metadata of a checkpoint", written.error());
  }
  int version = replaced == nullptr ? 1 : version_of(replaced->files->directory()) + 1;
  std::error_code code;
  while (fs::exists(fs::symlink_status(directory_of(checkpoint.path, version), code))) ++version;
  const fs::path target = directory_of(checkpoint.path, version);
  fs::rename(prepared, target, code);
  if (code) return storage_error("cannot commit a checkpoint", file_error("rename", prepared, code.value()));
  if (Status synced = sync_directory(target.parent_path()); !synced.ok()) {
    discard(target);  // otherwise a restart would find a checkpoint that was reported as failed
    return storage_error("cannot sync a checkpoint", synced.error());
  }
  Ptr committed = add(std::move(checkpoint), target);
  if (replaced != nullptr) {
    // If this fails, the next start recognizes the older version.
    (void)mark_deleted(replaced->files->directory());
    replaced->files->abandon();
  }
  return committed;
}

Status CheckpointStore::clone_files(const Checkpoint& source, const fs::path& prepared) const {
  std::error_code code;
  fs::create_directory(prepared, code);
  if (code)
    return storage_error("cannot make room for a checkpoint", file_error("create", "a directory", code.value()));
  fs::directory_iterator files(source.files->directory(), code);
  if (code)
    return storage_error("cannot read a checkpoint", file_error("list", source.files->directory(), code.value()));
  for (const auto& entry : files) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kMetadataFile) || name == kDeletedFile) continue;
    fs::create_hard_link(entry.path(), prepared / name, code);
    if (!code) continue;
    // A file system without links, or with too many of this file.
    code.clear();
    fs::copy_file(entry.path(), prepared / name, code);
    if (code) return storage_error("cannot copy a checkpoint", file_error("copy", entry.path(), code.value()));
    if (Status synced = sync_file(prepared / name); !synced.ok()) {
      return storage_error("cannot sync a checkpoint", synced.error());
    }
  }
  return {};
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
  if (!written.ok()) return storage_error("cannot write the metadata of a checkpoint", written.error());
  auto record = std::make_shared<const Checkpoint>(std::move(changed));
  lists_.put(record);
  return Ptr(record);
}

Status CheckpointStore::remove(const Ptr& checkpoint) {
  if (!is_current(checkpoint)) return no_such_checkpoint(checkpoint->path.str());
  TUFT_TRY(mark_deleted(checkpoint->files->directory()));
  checkpoint->files->abandon();
  (void)lists_.take(checkpoint->path.str());
  return {};
}

void CheckpointStore::forget(const CheckpointPath& path) {
  const Ptr taken = lists_.take(path.str());
  if (taken == nullptr) return;
  taken->files->abandon();
}

void CheckpointStore::clean_up() const {
  for (const fs::path& directory : space_->take_unneeded()) discard(directory);
}

// Renames before it removes, so that the next start recognizes an interrupted removal as a leftover.
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
  if (code)
    telemetry::log_warning("checkpoint.discard.failed", "old checkpoint files cannot be removed: " + code.message());
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
