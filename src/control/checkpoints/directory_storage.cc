#include "control/checkpoints/directory_storage.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/file.h"
#include "base/id.h"
#include "control/checkpoints/checkpoint_files.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWorkPrefix = ".tuft-";
constexpr const char* kDeletedFile = "deleted.json";
constexpr char kVersionMark = '~';  // not allowed in a name
constexpr size_t kMetadataBytesMax = 1 << 20;

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
Status check_content(const fs::path& directory, bool only_looks) {
  std::error_code code;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (entry.symlink_status(code).type() != fs::file_type::regular) {
      return data_loss("it holds " + name + ", which is not a regular file", "checkpoint_foreign");
    }
    if (name.starts_with(std::string(kMetadataFile) + ".tmp-")) unfinished.push_back(entry.path());
  }
  if (only_looks) return {};
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

Error unreadable(const std::string& what) {
  telemetry::log_error("checkpoint.archive.failed", what);
  return internal_error("the files of the checkpoint cannot be read", "checkpoint_storage");
}

class OpenFile final : public CheckpointFile {
 public:
  OpenFile(int fd, int64_t size_bytes) : fd_(fd), size_bytes_(size_bytes) {}
  ~OpenFile() override { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int64_t size_bytes() const override { return size_bytes_; }

  Result<std::string> read(int64_t offset, size_t bytes_max) override {
    std::string piece(bytes_max, '\0');
    ssize_t got = -1;
    do {
      got = ::pread(fd_, piece.data(), piece.size(), offset);
    } while (got < 0 && errno == EINTR);
    if (got == 0) return unreadable("a file of a checkpoint has shrunk");
    if (got < 0) return unreadable(std::string("a file of a checkpoint: ") + std::strerror(errno));
    piece.resize(static_cast<size_t>(got));
    return piece;
  }

 private:
  const int fd_;
  const int64_t size_bytes_;
};

class DirectoryStorage final : public CheckpointStorage {
 public:
  DirectoryStorage(fs::path root, bool only_looks) : root_(std::move(root)), only_looks_(only_looks) {}

  void scan(const std::function<void(Found)>& found) override {
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(root_, code)) {
      if (entry.symlink_status(code).type() != fs::file_type::directory) continue;
      for (const CheckpointKind kind : kAllCheckpointKinds) {
        scan_folder(entry.path(), kind, found);
        remove_if_empty(entry.path() / checkpoint_folder(kind));
      }
    }
  }

  Result<fs::path> prepare(const RunId& run, CheckpointKind kind) override {
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
    return *prepared_.insert(parent / (std::string(kWorkPrefix) + random_uuid())).first;
  }

  Result<fs::path> commit(const fs::path& prepared, const Checkpoint& checkpoint, const Checkpoint* replaced) override {
    if (Status written = write_file_atomically(prepared / kMetadataFile, to_metadata_json(checkpoint)); !written.ok()) {
      return storage_error("cannot write the metadata of a checkpoint", written.error());
    }
    int version = replaced == nullptr ? 1 : version_of(replaced->files->directory()) + 1;
    std::error_code code;
    while (fs::exists(fs::symlink_status(directory_of(checkpoint.path, version), code))) ++version;
    fs::path target = directory_of(checkpoint.path, version);
    fs::rename(prepared, target, code);
    if (code) return storage_error("cannot commit a checkpoint", file_error("rename", prepared, code.value()));
    if (Status synced = sync_directory(target.parent_path()); !synced.ok()) {
      remove_directory(target);  // otherwise a restart would find a checkpoint that was reported as failed
      return storage_error("cannot sync a checkpoint", synced.error());
    }
    prepared_.erase(prepared);
    // If this fails, the next start recognizes the older version.
    if (replaced != nullptr) (void)mark_deleted(replaced->files->directory());
    return target;
  }

  Status update(const fs::path& place, const Checkpoint&, const Checkpoint& changed) override {
    const Status written = write_file_atomically(place / kMetadataFile, to_metadata_json(changed));
    if (!written.ok()) return storage_error("cannot write the metadata of a checkpoint", written.error());
    return {};
  }

  Status retire(const fs::path& place, const Checkpoint&) override { return mark_deleted(place); }

  // The files share the disk space of the source where the file system can link files; they never change.
  Result<fs::path> clone(const fs::path& source, const RunId& run, CheckpointKind kind) override {
    TUFT_ASSIGN(fs::path prepared, prepare(run, kind));
    Status cloned = link_files(source, prepared);
    if (cloned.ok()) return prepared;
    discard(prepared);
    return std::move(cloned).error();
  }

  void discard(const fs::path& place) override {
    remove_directory(place);
    remove_temporary_ones(place);
    prepared_.erase(place);
    remove_if_empty(place.parent_path());
  }

  Result<std::unique_ptr<CheckpointFile>> open(const fs::path& place, const std::string& file) override {
    const int fd = ::open((place / file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat status {};
    if (fd < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
      if (fd >= 0) ::close(fd);
      return unreadable(file + " of a checkpoint cannot be opened");
    }
    return std::unique_ptr<CheckpointFile>(std::make_unique<OpenFile>(fd, status.st_size));
  }

  Result<fs::path> enter_directory(const fs::path& prepared, const std::vector<std::string>&) override {
    return prepared;
  }
  Status leave_directory(const fs::path&, const fs::path&, const std::vector<std::string>&, bool) override {
    return {};
  }

 private:
  fs::path directory_of(const CheckpointPath& path, int version) const {
    const std::string suffix = version > 1 ? kVersionMark + std::to_string(version) : std::string();
    return root_ / (name_of(path) + suffix);
  }

  // The name of a directory without its version.
  std::string name_at(const fs::path& directory) const {
    const std::string name = directory.filename().string();
    return (directory.lexically_relative(root_).parent_path() / name.substr(0, name.rfind(kVersionMark))).string();
  }

  void scan_folder(const fs::path& run_directory, CheckpointKind kind, const std::function<void(Found)>& found) {
    std::error_code code;
    std::vector<fs::path> leftovers;
    std::vector<fs::path> candidates;
    for (const auto& entry : fs::directory_iterator(run_directory / checkpoint_folder(kind), code)) {
      const fs::path& path = entry.path();
      if (entry.symlink_status(code).type() != fs::file_type::directory) {
        found({path, name_at(path), data_loss("it is a link or not a directory")});
      } else if (is_leftover(path.filename().string()) ||
                 (fs::exists(path / kDeletedFile, code) && !fs::exists(path / kMetadataFile, code))) {
        leftovers.push_back(path);
      } else {
        candidates.push_back(path);
      }
    }
    for (const fs::path& path : leftovers) remove_directory(path);
    std::sort(candidates.begin(), candidates.end(),
              [](const fs::path& a, const fs::path& b) { return version_of(a) > version_of(b); });
    for (const fs::path& path : candidates) found({path, name_at(path), read_checkpoint(path, kind)});
  }

  Result<Checkpoint> read_checkpoint(const fs::path& directory, CheckpointKind kind) const {
    TUFT_TRY(check_content(directory, only_looks_));
    TUFT_ASSIGN(const std::string text, read_file(directory / kMetadataFile, kMetadataBytesMax));
    TUFT_ASSIGN(Checkpoint checkpoint, from_metadata_json(text));
    if (checkpoint.path.kind == kind && directory_of(checkpoint.path, version_of(directory)) == directory) {
      return checkpoint;
    }
    return data_loss("metadata.json names another checkpoint; was the directory renamed?");
  }

  static Status link_files(const fs::path& source, const fs::path& target) {
    std::error_code code;
    fs::create_directory(target, code);
    if (code)
      return storage_error("cannot make room for a checkpoint", file_error("create", "a directory", code.value()));
    fs::directory_iterator files(source, code);
    if (code) return storage_error("cannot read a checkpoint", file_error("list", source, code.value()));
    for (const auto& entry : files) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(kMetadataFile) || name == kDeletedFile) continue;
      fs::create_hard_link(entry.path(), target / name, code);
      if (!code) continue;
      // A file system without links, or with too many of this file.
      code.clear();
      fs::copy_file(entry.path(), target / name, code);
      if (code) return storage_error("cannot copy a checkpoint", file_error("copy", entry.path(), code.value()));
      if (Status synced = sync_file(target / name); !synced.ok()) {
        return storage_error("cannot sync a checkpoint", synced.error());
      }
    }
    return {};
  }

  // Removes what a killed worker left beside the place that it was writing.
  void remove_temporary_ones(const fs::path& place) const {
    const std::string beside = "." + place.filename().string();
    if (!is_leftover(beside)) return;
    std::vector<fs::path> left;
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(place.parent_path(), code)) {
      if (entry.path().filename().string().starts_with(beside)) left.push_back(entry.path());
    }
    for (const fs::path& path : left) remove_directory(path);
  }

  // Most runs end with no checkpoint, and their folders would fill the disk and delay each start. `folder` is that of a
  // run's checkpoints of one kind; the run's own goes with the last of its folders. A worker that writes needs the
  // folder of its place.
  void remove_if_empty(const fs::path& folder) const {
    const auto is_in_use = [&](const fs::path& place) { return place.parent_path() == folder; };
    if (only_looks_ || !is_inside(folder)) return;
    if (std::any_of(prepared_.begin(), prepared_.end(), is_in_use)) return;
    // They fail for what is not empty.
    if (::rmdir(folder.c_str()) == 0) ::rmdir(folder.parent_path().c_str());
  }

  bool is_inside(const fs::path& directory) const {
    const fs::path inside = directory.lexically_relative(root_);
    return !inside.empty() && *inside.begin() != ".." && inside != ".";
  }

  // Renames before it removes, so that the next start recognizes an interrupted removal as a leftover.
  void remove_directory(const fs::path& directory) const {
    if (only_looks_ || !is_inside(directory)) return;
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

  const fs::path root_;
  const bool only_looks_;
  std::set<fs::path> prepared_;  // and neither committed nor discarded yet; of the disk thread
};

}  // namespace

std::unique_ptr<CheckpointStorage> make_directory_storage(fs::path root, bool only_looks) {
  return std::make_unique<DirectoryStorage>(std::move(root), only_looks);
}

}  // namespace tuft::control
