#include "actor/local_workers.h"

#include <limits>
#include <signal.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "actor/channel.h"
#include "actor/process.h"
#include "base/host.h"

namespace tuft::actor {
namespace {

constexpr size_t kUnixPathMax = 107;  // sockaddr_un

class LocalLife final : public WorkerLife {
 public:
  LocalLife(ChildProcess process, std::string socket, WorkerRows& rows)
      : process_(std::move(process)), socket_(std::move(socket)) {
    row_ = rows.add({.host = host_, .pid = process_.pid()});
  }
  ~LocalLife() override {
    std::error_code ignored;
    std::filesystem::remove(socket_, ignored);
  }

  uint64_t row() const override { return row_; }
  pid_t pid() const override { return process_.pid(); }
  const std::string& host() const override { return host_; }
  int ended_fd() const override { return process_.ended_fd(); }
  // A connection attempt that fails is repeated only after 100 ms or more, so it waits until the socket exists.
  std::shared_ptr<grpc::Channel> connect() override {
    return ::access(socket_.c_str(), F_OK) == 0 ? open_channel(socket_) : nullptr;
  }
  void ask_to_end() override { process_.signal(SIGTERM); }
  void kill() override { process_.signal(SIGKILL); }
  std::string reap() override { return process_.reap(); }

 private:
  ChildProcess process_;
  const std::string socket_;
  const std::string host_ = host_name();
  uint64_t row_ = 0;
};

class LocalWorkers final : public WorkerSource {
 public:
  LocalWorkers(WorkerSpec spec, std::shared_ptr<WorkerRows> rows) : spec_(std::move(spec)), rows_(std::move(rows)) {}

  Status check() const override {
    if (::access(spec_.executable.c_str(), X_OK) != 0) {
      return not_found("the worker program " + spec_.executable.string() + " does not exist or is not executable",
                       "no_worker");
    }
    const size_t length = socket_path(std::numeric_limits<uint32_t>::max()).native().size();
    if (length <= kUnixPathMax) return {};
    return invalid_argument("the socket directory " + spec_.socket_directory.string() +
                            " is too long for a unix socket; choose a directory of at most " +
                            std::to_string(spec_.socket_directory.native().size() + kUnixPathMax - length) + " bytes");
  }

  void on_available(std::function<void()>) override {}

  Result<std::unique_ptr<WorkerLife>> begin(uint64_t generation, const std::string& traceparent) override {
    const std::string socket = socket_path(generation).string();
    std::vector<std::string> arguments = spec_.arguments;
    arguments.insert(arguments.end(), {"--socket", socket, "--parent-pid", std::to_string(::getpid())});
    if (!traceparent.empty()) arguments.insert(arguments.end(), {"--traceparent", traceparent});
    TUFT_ASSIGN(auto process, ChildProcess::start(spec_.executable, arguments));
    return std::unique_ptr<WorkerLife>(std::make_unique<LocalLife>(std::move(process), socket, *rows_));
  }

 private:
  std::filesystem::path socket_path(uint64_t generation) const {
    return spec_.socket_directory / ("worker-" + std::to_string(generation) + ".sock");
  }

  const WorkerSpec spec_;
  const std::shared_ptr<WorkerRows> rows_;
};

}  // namespace

std::unique_ptr<WorkerSource> local_workers(WorkerSpec spec, std::shared_ptr<WorkerRows> rows) {
  return std::make_unique<LocalWorkers>(std::move(spec), std::move(rows));
}

}  // namespace tuft::actor
