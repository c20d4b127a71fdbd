// What the tests of replicate: true share.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/tests/plane.h"

namespace tuft::control {

class Replay : public PlaneTest {
 protected:
  Replay() { config().supported_models[0].replicate = true; }

  // Returns the number of the next operation of the run.
  int32_t next() { return ++seq_id_; }
  void step(const RunId& run) { value<OptimStepResult>(alice, optim_step(run, alice, next())); }
  void pass(const RunId& run) { value<ProtobufResult>(alice, forward_backward(run, alice, next())); }
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
  FakeActor& home(const RunId& run) { return worker(0).weights_of(run.str()) >= 0 ? worker(0) : worker(1); }
  FakeActor& other(const FakeActor& one) { return &one == &worker(0) ? worker(1) : worker(0); }
};

class ReplayJoined : public ReplayElsewhere {
 protected:
  ReplayJoined() { config().supported_models[0].worker = config::WorkerKind::kJoined; }
};

}  // namespace tuft::control
