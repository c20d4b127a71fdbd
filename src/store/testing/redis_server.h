// A redis-server process for one test, in its own directory, on a unix socket.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "base/testing/temp_dir.h"

namespace tuft::store {

class RedisServer {
 public:
  // Returns "" if redis-server is installed, else the message of a skipped test.
  static std::string why_missing();

  // `arguments` are passed to redis-server, before its other arguments.
  explicit RedisServer(std::vector<std::string> arguments = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string socket() const { return directory_.path() / "redis.sock"; }
  std::string url() const { return "unix://" + socket(); }

  // Sends one command, as one line of words, and returns the first bytes of the answer.
  std::string command(const std::string& words) const;
  void start();              // waits until it answers; data of an earlier start is there again
  void kill();               // SIGKILL
  void pause(bool stopped);  // SIGSTOP, SIGCONT

 private:
  TempDir directory_;
  std::vector<std::string> arguments_;
  pid_t pid_ = 0;
};

}  // namespace tuft::store
