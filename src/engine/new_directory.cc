#include "engine/new_directory.h"

#include <cerrno>
#include <fcntl.h>
#include <stdio.h>
#include <utility>

#include "base/file.h"
#include "base/id.h"

namespace tuft::engine {
namespace {

namespace fs = std::filesystem;

Error taken(const fs::path& path) {
  return {ErrorCode::kAlreadyExists, path.string() + " already exists; choose another name", "already_exists"};
}

// rename() would replace an empty directory of that name.
Status rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  int code = errno;
  if (code == EINVAL || code == ENOSYS) {  // the file system does not support it
    std::error_code ignored;
    if (fs::exists(to, ignored)) return taken(to);
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    code = errno;
  }
  if (code == EEXIST || code == ENOTEMPTY) return taken(to);
  return file_error("rename", from, code);
}

}  // namespace

Result<NewDirectory> NewDirectory::create(const fs::path& wanted) {
  std::error_code code;
  if (fs::exists(wanted, code)) return taken(wanted);
  fs::path temporary = wanted.parent_path() / ("." + wanted.filename().string() + ".tmp-" + random_uuid());
  fs::create_directories(temporary, code);
  if (code) return file_error("create the directory", temporary, code.value());
  return NewDirectory(wanted, std::move(temporary));
}

NewDirectory::NewDirectory(fs::path wanted, fs::path temporary)
    : wanted_(std::move(wanted)), temporary_(std::move(temporary)) {}

NewDirectory::NewDirectory(NewDirectory&& other) noexcept
    : wanted_(std::move(other.wanted_)), temporary_(std::exchange(other.temporary_, fs::path())) {}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

Status NewDirectory::commit() {
  TUFT_TRY(sync_directory(temporary_));
  TUFT_TRY(rename_to_new(temporary_, wanted_));
  temporary_.clear();
  return sync_directory(wanted_.parent_path());
}

}  // namespace tuft::engine
