// An operation is what the engine thread runs for one call. It runs in several pieces if it needs files or training
// passes in between.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/train/scheduler.h"
#include "rpc/methods.h"
#include "telemetry/instrument.h"
#include "telemetry/trace.h"
#include "worker/adapter_pager.h"

namespace tuft::worker {

// The caller of a method, and the time of the call.
struct Caller {
  telemetry::SpanContext trace;
  v1::CallIds ids;
  Nanos arrived = 0;  // Clock::monotonic()
  // Holds the share keys of `trace` until the call is answered. Null: there are none.
  std::shared_ptr<const telemetry::SharedKeys> keys = nullptr;
};

template <typename Response>
using Reply = std::function<void(Result<Response>)>;

// One call of a unary method of rpc/methods.h. `reply` must run exactly once; `request` lives until then.
template <typename Method>
struct Call {
  const typename Method::Request& request;
  Caller caller;
  Reply<typename Method::Response> reply;
};

struct AdapterLimits {
  int rank_max = 256;
};

// The metrics of operations, bound to the labels of one base model.
struct OperationMetrics {
  explicit OperationMetrics(const std::string& base_model);

  telemetry::BoundHistogram train_queue;
  telemetry::BoundCounter passes;
  telemetry::BoundHistogram pass_duration;
  telemetry::BoundHistogram pass_sequences;
  telemetry::BoundHistogram pass_tokens;
  telemetry::BoundHistogram pass_adapters;
  telemetry::BoundHistogram pass_requests;
  telemetry::BoundHistogram pass_runs;
  telemetry::BoundHistogram pass_fill;
  telemetry::BoundCounter passes_out_of_memory;
  telemetry::BoundCounter optim_passes;
  telemetry::BoundHistogram optim_duration;
  telemetry::BoundHistogram optim_runs;
  telemetry::BoundHistogram passes_of_request;
  telemetry::BoundHistogram load_from_disk;
  telemetry::BoundHistogram load_new;
};

class BucketCheckpoints;
class Operation;
class PassRecorder;
class StepBatch;

// The engine and what belongs to it, for operations. Confined to the engine thread.
struct EngineContext {
  engine::Engine& engine;
  AdapterPager& adapters;
  const Clock& clock;
  const std::string& base_model;
  const OperationMetrics& metrics;
  engine::TrainScheduler& trainer;
  PassRecorder& passes;
  StepBatch& steps;
  AdapterLimits limits;
  BucketCheckpoints* bucket;  // for run_file(); null: checkpoints are in directories
  // Cancels the samples that run on a sampler. Called before the sampler is removed.
  std::function<void(const engine::AdapterId&)> cancel_samples;
  // Must be called when the training scheduler has answered an operation that is kTraining.
  std::function<void(Operation&)> trained;
  std::unordered_map<engine::AdapterId, int> ranks = {};  // of the adapters and samplers
};

// The engine's ids of adapters and samplers. The two kinds do not collide.
engine::AdapterId training_adapter(const std::string& adapter_id);
engine::AdapterId sampler_adapter(const std::string& sampler_id);

class Operation {
 public:
  enum class Progress : uint8_t {
    kFile,      // run_file() must run on the file thread or the page thread, then advance()
    kTraining,  // the training scheduler has it; advance() must run after EngineContext::trained()
    kStepping,  // it is in EngineContext::steps; advance() must run when they have been taken
    kDone,      // the call is answered
  };

  virtual ~Operation() = default;
  // Returns the name of the operation's queue. Operations of one queue run one after the other, in order of arrival.
  virtual const std::string& queue() const = 0;
  // Returns whether it may advance to kTraining while those before it in its queue are still training.
  virtual bool trains() const { return false; }
  // Returns whether its first piece only advances to kStepping, which takes no time.
  virtual bool steps() const { return false; }
  // Returns whether the operations that wait in its queue fail instead of running. An operation that has begun goes on,
  // unless it trains.
  virtual bool ends_queue() const { return false; }
  // Returns whether its adapter must be in the engine's memory and not in a page.
  virtual bool needs_adapter() const { return true; }
  // Returns whether run_file() makes an adapter without files. It then runs on the page thread, which waits for no file
  // server and no network.
  virtual bool makes() const { return false; }
  // Returns whether run_file() reads an adapter, which then is beside those in the engine.
  virtual bool loads() const { return false; }
  // Returns whether run_file() writes an adapter, of which before_file() makes a copy.
  virtual bool saves() const { return false; }
  // Returns the trace context of the call.
  virtual telemetry::SpanContext cause() const { return {}; }
  // Returns the tenant whose turn at the file thread or the page thread it takes.
  virtual std::string tenant() const { return {}; }
  // Runs the next piece on the engine thread.
  virtual Progress advance(EngineContext& context) = 0;
  // Runs on the engine thread after kFile, right before another thread gets the operation. One that loads or saves
  // waits for that while many others do. After an error the operation fails.
  virtual Status before_file(EngineContext&) { return {}; }
  // Does what takes long, on the file thread or the page thread. Must not touch the engine, except
  // AdapterStore::make().
  virtual void run_file() {}
  // Runs on the thread of run_file() when that threw. The next advance() answers with `error`.
  virtual void file_failed(const Error& error) = 0;
  // Answers with `error`; the operation is dropped after that. Runs on the engine thread, or after it has ended.
  virtual void fail(const Error& error) = 0;
};

// Each operation method X of rpc/methods.h has a make_operation(Call<rpc::X>).
#define TUFT_MAKE_OPERATION(Name, function, timeout) std::unique_ptr<Operation> make_operation(Call<rpc::Name> call);
TUFT_OPERATION_METHODS(TUFT_MAKE_OPERATION)
#undef TUFT_MAKE_OPERATION
// `request` is the result of to_train_request(); the call's own request is not read.
std::unique_ptr<Operation> make_forward_backward(Call<rpc::ForwardBackward> call, engine::TrainRequest request);

}  // namespace tuft::worker
