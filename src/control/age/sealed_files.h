// Replaces files in a directory by their encryption, in steps.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/age/encryption.h"

namespace tuft::control::age {

// "x" becomes "x.age"; when that is durable, "x" is removed. Not thread-safe; access to files is for the disk thread.
class SealedFiles {
 public:
  // The bytes of a file that one step encrypts.
  static constexpr int64_t kStepBytes = 4 << 20;

  SealedFiles(std::filesystem::path directory, std::vector<std::string> names, std::vector<Recipient> recipients)
      : directory_(std::move(directory)), names_(std::move(names)), recipients_(std::move(recipients)) {}

  // Does a step. Returns true when all files are done. After an error the directory must be removed. Messages have no
  // path of the server.
  Result<bool> advance();
  // The bytes by which the files have grown so far.
  int64_t growth() const { return growth_; }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Closer>;

  Status open_next();
  Status encrypt_step();
  Status finish_file();

  const std::filesystem::path directory_;
  const std::vector<std::string> names_;
  const std::vector<Recipient> recipients_;
  size_t next_ = 0;  // of names_
  // The file that is being encrypted.
  File plain_, sealed_;
  int64_t left_ = 0;  // bytes of plain_
  std::optional<Encryption> encryption_;
  int64_t growth_ = 0;
};

}  // namespace tuft::control::age
