// Starts, watches and restarts one tuft-worker process and speaks gRPC with it over a unix socket.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "actor/model_actor.h"
#include "base/result.h"

namespace tuft::actor {

struct WorkerSpec {
  std::string base_model;
  std::filesystem::path executable;          // tuft-worker
  std::vector<std::string> arguments;        // without --socket, which the supervisor adds
  std::filesystem::path socket_directory;    // 0700, ours alone; one socket a life
  Nanos start_timeout = 600 * kSecond;       // until the weights are in memory
  Nanos restart_delay = 200 * kMillisecond;  // doubles with each early death ...
  Nanos restart_delay_max = 30 * kSecond;    // ... up to this
  Nanos stop_timeout = 2 * kSecond;          // SIGTERM, then SIGKILL
};

// The actor behind a supervised process. start() launches it and returns; ready() turns true when it answers.
// A worker that dies fails its calls with kUnavailable "worker_died" (the message names signal or exit code) and is
// started again. stop() ends the process within stop_timeout and fails what was running.
class SupervisedActor : public ModelActor {
 public:
  virtual Status start() = 0;
  virtual void stop() = 0;
  // Waits for the first ready; false when it died or `timeout` passed (the message of the reason is in `why`).
  virtual Status wait_ready(Nanos timeout) = 0;
};

std::unique_ptr<SupervisedActor> make_supervised_actor(WorkerSpec spec);

}  // namespace tuft::actor
