// What the tests of replicate: true share.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/futures/future_store.h"
#include "control/tests/plane.h"

namespace tuft::control {

class Replay : public PlaneTest {
 protected:
  Replay() { config().supported_models[0].replicate = true; }

  // Returns the number of the next operation of the run.
  int32_t next() { return ++seq_id_; }
  void step(const RunId& run) { value<OptimStepResult>(alice, optim_step(run, alice, next())); }
  void pass(const RunId& run) { value<ProtobufResult>(alice, forward_backward(run, alice, next())); }
  std::vector<RequestId> submit_steps(const RunId& run, int count) {
    std::vector<RequestId> steps;
    for (int i = 0; i < count; ++i) steps.push_back(optim_step(run, alice, next()));
    return steps;
  }
  // The journals of a user have room for ten operations, so that after six the server saves.
  void shorten_journals() { config().limits.journal_bytes_per_user_max = 10 * FutureStore::kOperationBytes; }
  void crash_and_restore(const RunId& run) {
    EXPECT_TRUE(durable().ok());
    crash_and_boot();
    sweep_until([&] { return home(run).weights_of(run.str()) >= 0; });
  }
  // The calls that change or read the adapter, without its name.
  static std::vector<std::string> functions(const FakeActor& worker) {
    std::vector<std::string> functions;
    for (const std::string& call : worker.calls()) functions.push_back(call.substr(0, call.find(' ')));
    return functions;
  }

 private:
  int32_t seq_id_ = 0;
};

class ReplayElsewhere : public Replay {
 protected:
  ReplayElsewhere() { config().supported_models[0].workers = 2; }
};

class ReplayJoined : public ReplayElsewhere {
 protected:
  ReplayJoined() { config().supported_models[0].worker = config::WorkerKind::kJoined; }
};

}  // namespace tuft::control
