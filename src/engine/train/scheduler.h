// Continuous training batching: datums of many requests and adapters share passes of the engine.
//
// A pass is filled up to a budget of tokens. Adapters take turns by deficit round robin, counted in tokens, first in
// first out within an adapter: tenants have equal weights, which the adapters of a tenant share. A big request is split
// by datum, so that it cannot block a small one. What was passed over in kPassedOverMax passes goes before them,
// longest waiting first, one adapter of each tenant. A datum longer than the budget makes a pass of its own, and so
// does what wants a backward pass and what does not: a forward of one tenant shall not pay for the backward of another.
// Nothing waits for a pass to become fuller.
//
// The log-probabilities and gradients of a request are the same bits whoever shares its passes and however it is cut:
// the datums of an adapter come in order, and the engine sums in that order.
//
// Failures are of one request. A pass of several that fails is run again, each request alone; one that fails alone is
// answered with the error, and the gradient is what it was before that request. A loss or gradient that is not finite
// is no failure: it is reported, and stays in its own adapter, whose optim_step is then skipped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/trainer.h"

namespace tuft::engine {

using TrainRequestNumber = uint64_t;

// What one request has in a pass.
struct PassShare {
  TrainRequestNumber request = 0;
  int datums = 0;
  int tokens = 0;
};

struct TrainPass {
  int64_t number = 0;  // from 1
  bool backward = true;
  int tokens = 0;
  int adapters = 0;
  std::vector<PassShare> shares;
};

// Told of every pass, on the engine thread. Must not call the scheduler.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  virtual void pass_begins(const TrainPass& pass) = 0;
  // After every pass_begins().
  virtual void pass_ended(const TrainPass& pass, const Status& status) = 0;
};

// Confined to the engine thread.
class TrainScheduler {
 public:
  using Done = std::function<void(Result<TrainOutput>)>;

  virtual ~TrainScheduler() = default;
  // Checks everything first: a loss, key, shape, dtype or token that is wrong is kInvalidArgument naming datum and key,
  // before anything is computed. `done` is called once, from step() or cancel(), and may itself submit and cancel.
  virtual Result<TrainRequestNumber> submit(TrainRequest request, Done done) = 0;
  // Answers the adapter's requests with `error` and takes back what the one that has begun has added to the gradient.
  // To be called before the adapter is removed or loaded anew.
  virtual void cancel(const AdapterId& adapter, const Error& error) = 0;
  virtual bool idle() const = 0;
  virtual int waiting() const = 0;  // requests, with those that have begun
  // Tokens that the adapter furthest behind has saved up; 0 where nobody waits.
  virtual double deficit_max() const = 0;
  // Runs one pass, where there is something to run.
  virtual void step() = 0;
};

// After so many passes without it an adapter's next datum does not wait for its turn any more.
inline constexpr int kPassedOverMax = 3;

// The engine and the observer (which may be null) outlive the scheduler. Requests that are left when it is destroyed
// get no answer.
std::unique_ptr<TrainScheduler> make_train_scheduler(Engine& engine, const TrainerOptions& options,
                                                     PassObserver* observer = nullptr);

// Runs one request to its end, with a scheduler of its own (tools, tests).
Result<TrainOutput> train_alone(Engine& engine, TrainRequest request, const TrainerOptions& options);

}  // namespace tuft::engine
