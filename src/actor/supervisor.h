// Watches the worker of a base model through its lives, and calls it over gRPC: a tuft-worker process that is started
// here, on a unix socket, or one that joins from anywhere (worker_registry.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actor/model_actor.h"
#include "actor/worker_rows.h"
#include "actor/worker_source.h"
#include "base/result.h"

namespace tuft::actor {

// What the workers that serve one base model at the same time have in common.
struct SharedByWorkers {
  std::shared_ptr<WorkerRows> rows = std::make_shared<WorkerRows>();
  std::shared_ptr<std::atomic<uint64_t>> lives = std::make_shared<std::atomic<uint64_t>>(0);  // their number so far
};

// How a worker is watched.
struct Supervision {
  std::string base_model;
  SharedByWorkers shared = {};
  Nanos start_timeout = 600 * kSecond;  // time limit until the weights are in memory
  // A worker that was started here is started again after restart_delay, which doubles with each early death up to
  // restart_delay_max.
  Nanos restart_delay = 200 * kMillisecond;
  Nanos restart_delay_max = 30 * kSecond;
  Nanos stop_timeout = 2 * kSecond;  // between SIGTERM and SIGKILL
  Nanos heartbeat = 5 * kSecond;     // between health checks, and the time limit of each
  // A worker that answers nothing for so long counts as gone; 0: it is waited for.
  Nanos lease = 0;
  // Says whether this server may call workers; unset: it always may. Thread-safe, and quick.
  std::function<bool()> may_call = {};
};

// A worker that is started here.
struct WorkerSpec : Supervision {
  std::filesystem::path executable;        // tuft-worker
  std::vector<std::string> arguments;      // without those that the supervisor adds, such as --socket
  std::filesystem::path socket_directory;  // must have mode 0700; each life has its own socket
};

// A ModelActor with a process of its own. start() launches the process and returns; ready() becomes true when the
// process answers. When a worker dies, its calls fail with kUnavailable "worker_died" (the message names the signal or
// exit code) and the worker is started again, or another one that has joined takes its place. A worker that gives
// no sign of life (WorkerLife::last_sign()) during several health checks in a row is not ready until it gives one;
// its calls wait. stop() ends the process within stop_timeout and fails the running calls.
class SupervisedActor : public ModelActor {
 public:
  virtual Status start() = 0;
  virtual void stop() = 0;
  // Waits until the worker is ready for the first time. Returns an error if it died or `timeout` passed.
  virtual Status wait_ready(Nanos timeout) = 0;
};

std::unique_ptr<SupervisedActor> make_supervised_actor(WorkerSpec spec);
// supervision.shared.rows are those of the source.
std::unique_ptr<SupervisedActor> make_joined_actor(Supervision supervision, std::unique_ptr<WorkerSource> source);

}  // namespace tuft::actor
