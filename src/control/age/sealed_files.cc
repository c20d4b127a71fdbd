#include "control/age/sealed_files.h"

#include <algorithm>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "telemetry/log.h"

namespace tuft::control::age {
namespace {

Error file_failed(const char* what, const std::string& name) {
  telemetry::log_error("checkpoint.encryption.failed", std::string(what) + " " + name + " of a checkpoint failed");
  return internal_error("a checkpoint could not be encrypted; the server's log says why", "checkpoint_storage");
}

}  // namespace

Result<bool> SealedFiles::advance() {
  if (next_ == names_.size()) return true;
  if (plain_ == nullptr) TUFT_TRY(open_next());
  TUFT_TRY(encrypt_step());
  if (left_ > 0) return false;
  TUFT_TRY(finish_file());
  return next_ == names_.size();
}

Status SealedFiles::open_next() {
  const std::filesystem::path plain = directory_ / names_[next_];
  std::error_code code;
  left_ = static_cast<int64_t>(std::filesystem::file_size(plain, code));
  if (code) return file_failed("reading", names_[next_]);
  plain_.reset(std::fopen(plain.c_str(), "rbe"));
  sealed_.reset(std::fopen((plain.string() + std::string(kSuffix)).c_str(), "wbxe"));
  if (plain_ == nullptr || sealed_ == nullptr) return file_failed("opening", names_[next_]);
  const Secrets secrets = Secrets::draw(recipients_.size());
  TUFT_ASSIGN(Encryption encryption, Encryption::begin(recipients_, secrets));
  const std::string& header = encryption.header();
  if (std::fwrite(header.data(), 1, header.size(), sealed_.get()) != header.size()) {
    return file_failed("writing", names_[next_]);
  }
  growth_ += static_cast<int64_t>(header.size());
  encryption_.emplace(std::move(encryption));
  return {};
}

Status SealedFiles::encrypt_step() {
  std::string chunk;
  int64_t step = std::min(left_, kStepBytes);
  do {
    const auto size = static_cast<size_t>(std::min<int64_t>(left_, kChunkBytes));
    chunk.resize(size);
    if (std::fread(chunk.data(), 1, size, plain_.get()) != size) return file_failed("reading", names_[next_]);
    left_ -= static_cast<int64_t>(size);
    step -= static_cast<int64_t>(size);
    TUFT_ASSIGN(const std::string sealed, encryption_->seal(chunk, left_ == 0));
    if (std::fwrite(sealed.data(), 1, sealed.size(), sealed_.get()) != sealed.size()) {
      return file_failed("writing", names_[next_]);
    }
    growth_ += static_cast<int64_t>(sealed.size() - size);
  } while (step > 0);
  return {};
}

Status SealedFiles::finish_file() {
  const bool durable = std::fflush(sealed_.get()) == 0 && ::fsync(::fileno(sealed_.get())) == 0;
  plain_.reset();
  sealed_.reset();
  encryption_.reset();
  std::error_code code;
  if (durable) std::filesystem::remove(directory_ / names_[next_], code);
  if (!durable || code) return file_failed("writing", names_[next_]);
  ++next_;
  return {};
}

}  // namespace tuft::control::age
