// A real redis-server of a test's own, in a directory of its own, on a unix socket.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "base/testing/temp_dir.h"

namespace tuft::store {

class RedisServer {
 public:
  // Empty where redis-server is installed; else what a skipped test says.
  static std::string why_missing();

  // `arguments` as on redis-server's command line.
  explicit RedisServer(std::vector<std::string> arguments = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string socket() const { return directory_.path() / "redis.sock"; }
  std::string url() const { return "unix://" + socket(); }

  void start();              // and waits until it answers; what an earlier start wrote is there again
  void kill();               // SIGKILL
  void pause(bool stopped);  // SIGSTOP, SIGCONT

 private:
  TempDir directory_;
  std::vector<std::string> arguments_;
  pid_t pid_ = 0;
};

}  // namespace tuft::store
