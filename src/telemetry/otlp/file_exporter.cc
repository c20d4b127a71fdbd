#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "telemetry/otlp/exporters.h"
#include "telemetry/otlp/json.h"

namespace tuft::telemetry::internal::otlp {
namespace {

std::string problem_text(int code) {
  return std::strerror(code);  // NOLINT(concurrency-mt-unsafe): glibc's is thread-safe
}

// One write() of one line to a file opened for appending: lines of several writers do not mix.
class FileExporter final : public Exporter {
 public:
  FileExporter(Signal signal, int file) : signal_(signal), file_(file) {}
  ~FileExporter() override { ::close(file_); }
  FileExporter(const FileExporter&) = delete;
  FileExporter& operator=(const FileExporter&) = delete;

  ExportResult send(std::string_view request) override {
    if (cancelled_.load()) return failed(ExportResult::Outcome::kRetry, "cancelled by the shutdown");
    const auto message = parse_request(signal_, request);
    if (message == nullptr) return failed(ExportResult::Outcome::kRefused, "the request cannot be read");
    std::string line;
    // The previous write may have left a part of a line (see below), which must be ended first.
    if (torn_) line += '\n';
    append_json(line, *message);
    line += '\n';
    ssize_t written = -1;
    do {
      written = ::write(file_, line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    if (written == static_cast<ssize_t>(line.size())) {
      torn_ = false;
      return {};
    }
    if (written < 0) return failed(ExportResult::Outcome::kRetry, problem_text(errno));
    take_back(static_cast<size_t>(written));
    return failed(ExportResult::Outcome::kRetry, "the disk is full");
  }
  void cancel() override { cancelled_.store(true); }

 private:
  static ExportResult failed(ExportResult::Outcome outcome, const std::string& message) {
    return {.outcome = outcome,
            .error_type = "write_failed",
            .message = "the telemetry file cannot be written: " + message};
  }

  // A full disk leaves a part of a line at the end. It is removed, unless another process has appended after it.
  void take_back(size_t written) {
    const off_t end = ::lseek(file_, 0, SEEK_CUR);
    struct stat status {};
    torn_ = end < 0 || ::fstat(file_, &status) != 0 || status.st_size != end ||
            ::ftruncate(file_, end - static_cast<off_t>(written)) != 0;
  }

  const Signal signal_;
  const int file_;
  bool torn_ = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

Result<std::unique_ptr<Exporter>> make_file_exporter(Signal signal, const SignalSettings& settings) {
  constexpr mode_t kOwnerAndGroup = 0640;
  // Opens without blocking: a FIFO without a reader is refused instead of waited for.
  const int file =
      ::open(settings.endpoint.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, kOwnerAndGroup);
  if (file < 0)
    return invalid_argument(
        "telemetry.file_path '" + settings.endpoint + "' cannot be opened for writing: " + problem_text(errno),
        "telemetry_file_path");
  return std::unique_ptr<Exporter>(std::make_unique<FileExporter>(signal, file));
}

}  // namespace tuft::telemetry::internal::otlp
