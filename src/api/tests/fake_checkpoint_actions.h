// Checkpoint actions that record their calls, and a small archive.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "control/checkpoints/checkpoint_actions.h"

namespace tuft::api {

class FakeArchive final : public control::Archive {
 public:
  explicit FakeArchive(std::string content) : content_(std::move(content)) {}
  int64_t size_bytes() const override { return static_cast<int64_t>(content_.size()); }
  std::string file_name() const override { return "checkpoint.tar"; }
  std::string_view content_type() const override { return "application/x-tar"; }
  void read(size_t bytes_max, std::function<void(Result<std::string>)> done) override {
    std::string piece = content_.substr(at_, bytes_max);
    at_ += piece.size();
    done(std::move(piece));
  }

 private:
  const std::string content_;
  size_t at_ = 0;
};

// Thread-safe. The only checkpoint is tinker://r/weights/a of alice.
class FakeCheckpointActions final : public control::CheckpointActions {
 public:
  static constexpr const char* kTicket = "ticket";
  std::string archive = std::string(100'000, 'x');

  std::vector<std::string> calls() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return calls_;
  }

  void remove(const control::UserId& user, const control::CheckpointPath& path, const telemetry::SpanContext&,
              Done done) override {
    done(note(user, path, "remove"));
  }
  void set_public(const control::UserId& user, const control::CheckpointPath& path, bool is_public,
                  const telemetry::SpanContext&, Done done) override {
    done(note(user, path, is_public ? "publish" : "unpublish"));
  }
  void set_ttl(const control::UserId& user, const control::CheckpointPath& path, std::optional<int64_t> seconds,
               const telemetry::SpanContext&, Done done) override {
    done(note(user, path, "ttl " + (seconds ? std::to_string(*seconds) : std::string("none"))));
  }
  void copy(const control::UserId& user, const control::CopyWeights& request, const telemetry::SpanContext&,
            Copied done) override TUFT_EXCLUDES(mutex_) {
    if (user.str() != "alice") return done(not_found("there is no such checkpoint"));
    {
      MutexLock lock(mutex_);
      last_copy_ = request;
    }
    done(std::string("tinker://copy:train:0/weights/a"));
  }
  control::CopyWeights last_copy() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return last_copy_;
  }
  Result<Ticket> archive_ticket(const control::UserId& user, const control::CheckpointPath& path) override {
    TUFT_TRY(note(user, path, "archive"));
    return Ticket{kTicket, 1'700'000'900 * kSecond};
  }
  Result<FileTickets> file_tickets(const control::UserId& user, const control::CheckpointPath& path) override {
    if (user.str() != "alice" || path.str() != "tinker://r/external_weights/a") return not_found("there is no such");
    return FileTickets{{{"adapter_config.json", kTicket}, {"adapter_model.safetensors", "other"}},
                       1'700'000'900 * kSecond};
  }
  void open_archive(std::string_view token,
                    std::function<void(Result<std::unique_ptr<control::Archive>>)> done) override {
    if (token != kTicket) return done(Error{ErrorCode::kPermissionDenied, "this archive address is not valid", ""});
    done(std::unique_ptr<control::Archive>(std::make_unique<FakeArchive>(archive)));
  }

 private:
  Status note(const control::UserId& user, const control::CheckpointPath& path, const std::string& what)
      TUFT_EXCLUDES(mutex_) {
    if (user.str() != "alice" || path.str() != "tinker://r/weights/a") return not_found("there is no such checkpoint");
    MutexLock lock(mutex_);
    calls_.push_back(what + " " + path.str());
    return {};
  }

  mutable Mutex mutex_;
  std::vector<std::string> calls_ TUFT_GUARDED_BY(mutex_);
  control::CopyWeights last_copy_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::api
