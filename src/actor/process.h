// A child process and the news of its end.
#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"

namespace tuft::actor {

// Move-only. Confined to one thread. The child must be reaped before this is destroyed.
class ChildProcess {
 public:
  // The child gets /dev/null as input, our stdout and stderr and nothing else, default signals, and a process group of
  // its own: Ctrl-C at the terminal is for us, who end it in order.
  // The kernel ties PR_SET_PDEATHSIG to the thread that starts the child: it must live as long as the child should.
  static Result<ChildProcess> start(const std::filesystem::path& executable, const std::vector<std::string>& arguments);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int ended_fd() const { return pidfd_; }  // readable once the child has ended
  void signal(int number) const;
  // Waits for the end and says how it came: "was killed by signal 9 (Killed)", "exited with code 1".
  std::string reap();

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  pid_t pid_;
  int pidfd_;
};

}  // namespace tuft::actor
