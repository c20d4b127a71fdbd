#include "actor/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

extern char** environ;

namespace tuft::actor {
namespace {

std::string system_message(int error) {
  char text[128];
  return strerror_r(error, text, sizeof(text));
}

struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
};

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::filesystem::path& executable,
                                         const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(executable.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const SpawnSettings settings;
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, executable.c_str(), &settings.actions, &settings.attributes, argv.data(), environ);
  if (error != 0) return internal_error("cannot start " + executable.string() + ": " + system_message(error));
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    const std::string why = system_message(errno);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return internal_error("cannot watch the process (pidfd_open: " + why + "); Linux 5.3 or newer is needed");
  }
  return ChildProcess(pid, pidfd);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_), pidfd_(std::exchange(other.pidfd_, -1)) {}

ChildProcess::~ChildProcess() {
  if (pidfd_ >= 0) close(pidfd_);
}

void ChildProcess::signal(int number) const {
  (void)syscall(SYS_pidfd_send_signal, pidfd_, number, nullptr, 0);
}

std::string ChildProcess::reap() {
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped < 0) return "ended for an unknown reason";
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const char* const name = sigdescr_np(number);  // real-time signals have none
    return "was killed by signal " + std::to_string(number) +
           (name == nullptr ? std::string() : " (" + std::string(name) + ")");
  }
  return "exited with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace tuft::actor
