// NewDirectory: a directory that appears complete or not at all. Internal to engine.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace tuft::engine {

// Files are written into path(), a temporary directory beside the wanted one, and commit() renames it into place.
// What is not published is removed with this object; a crash may leave a ".<name>.tmp-*" behind.
class NewDirectory {
 public:
  // Creates missing parents. Returns kAlreadyExists if `wanted` exists.
  static Result<NewDirectory> create(const std::filesystem::path& wanted);

  NewDirectory(NewDirectory&& other) noexcept;
  NewDirectory& operator=(NewDirectory&&) = delete;
  ~NewDirectory();

  const std::filesystem::path& path() const { return temporary_; }
  // Durable when it returns; the files in it must be synced already. kAlreadyExists where somebody was faster.
  Status commit();

 private:
  NewDirectory(std::filesystem::path wanted, std::filesystem::path temporary);

  std::filesystem::path wanted_;
  std::filesystem::path temporary_;  // empty once committed or moved away
};

}  // namespace tuft::engine
