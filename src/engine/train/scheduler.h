// Continuous training batching: datums of many requests and adapters share passes of the engine.
//
// A pass is filled up to a budget of tokens. Adapters take turns by deficit round robin, counted in tokens, first in
// first out within an adapter. A token counts as one, and as one more for each ModelCost::positions_per_token()
// positions that it attends to: with Qwen3-0.6B, a datum of 32,768 tokens counts as 136,000. Tenants have equal
// weights, and the adapters of one tenant share its weight. A large request is split by datum, so that it cannot block
// a small one. An adapter that was passed over in kPassedOverMax passes goes first, the longest waiting before others,
// one adapter per tenant. A datum longer than the budget makes a pass of its own. Requests with and without a backward
// pass never share a pass, so that the forward of one tenant does not pay for the backward of another. No pass waits to
// become fuller.
//
// While several tenants wait, what an adapter takes without credit for it is a debt, in full: its next credit pays it,
// or the credit that it would have if something of it waited. While a tenant owes more than its adapters have saved,
// none of them goes first, and passes are of the kind that others want. So long datums get the same arithmetic as short
// ones, and one waits until each other tenant could have as much as the one before had. Who is alone owes nothing, and
// debts are forgotten when nothing waits.
//
// The log-probabilities and gradients of a request are the same bits whatever shares its passes and however it is
// split: the datums of an adapter run in order, and the engine sums in that order.
//
// A failure affects one request. If a shared pass fails, its requests run again, each alone. A request that fails alone
// is answered with the error, and the gradient is restored to its value before that request. A loss or gradient that is
// not finite is no failure: it is reported and stays in its own adapter, and the next optim_step is skipped. Of a
// custom loss it is a failure: the request's gradient is taken back, and those of the adapter that follow run again. A
// lack of memory is a failure like others, not an exception of step(); if not even a pass can be planned, the oldest
// request of the adapter whose turn it is fails.
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

// The part of a pass that belongs to one request.
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

// Called for every pass, on the engine thread. Must not call the scheduler, and must not throw.
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
  // Queues a request. Returns kInvalidArgument, with the datum and the key, for a wrong loss, key, shape, dtype or
  // token; nothing is computed then. Calls `done` once, from step() or cancel(); it may submit and cancel, and must not
  // throw. Throws std::bad_alloc, without an effect, if there is no memory for the request.
  virtual Result<TrainRequestNumber> submit(TrainRequest request, Done done) = 0;
  // Answers all requests of the adapter with `error` and restores the gradient to its value before the unfinished one.
  // Must be called before the adapter is removed or replaced.
  virtual void cancel(const AdapterId& adapter, const Error& error) = 0;
  virtual bool idle() const = 0;
  virtual int waiting() const = 0;  // number of requests, including unfinished ones
  // Returns the largest credit of an adapter, in tokens; 0 if no request waits.
  virtual double deficit_max() const = 0;
  // Runs one pass, unless idle().
  virtual void step() = 0;
};

// After so many passes without an adapter its next datum does not wait for its turn, unless it or its tenant owes.
inline constexpr int kPassedOverMax = 3;

// Runs tasks on the threads of the engine, as DecodeEngine::run_tasks() does.
using TaskRunner = std::function<void(int tasks, const std::function<void(int number, int thread)>& task)>;

// The ports and the observer (may be null) must outlive the scheduler. Requests that remain at its destruction get no
// answer. `runner` evaluates the custom losses of a pass, a datum a task; without it the engine thread does.
std::unique_ptr<TrainScheduler> make_train_scheduler(const ModelSpec& model, AdapterStore& adapters,
                                                     TrainingEngine& engine, const TrainerOptions& options,
                                                     PassObserver* observer = nullptr, TaskRunner runner = {});

// Runs one request to its end with its own scheduler (for tools and tests).
Result<TrainOutput> train_alone(Engine& engine, TrainRequest request, const TrainerOptions& options);

}  // namespace tuft::engine
