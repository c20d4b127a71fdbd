// A child process whose end can be polled.
#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"

namespace tuft::actor {

// Move-only. Confined to one thread. The child must be reaped before this object is destroyed.
class ChildProcess {
 public:
  // Starts a child with /dev/null as input, our stdout and stderr, no other descriptors, default signals and its own
  // process group: Ctrl-C at the terminal signals only us, and we stop the child in order.
  // The kernel ties PR_SET_PDEATHSIG to the thread that starts the child. This thread must outlive the child.
  static Result<ChildProcess> start(const std::filesystem::path& executable, const std::vector<std::string>& arguments);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int ended_fd() const { return pidfd_; }  // readable once the child has ended
  void signal(int number) const;
  // Waits for the end and returns its cause, for instance "was killed by signal 9 (Killed)" or "exited with code 1".
  std::string reap();

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  pid_t pid_;
  int pidfd_;
};

}  // namespace tuft::actor
