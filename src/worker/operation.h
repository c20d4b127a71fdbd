// What the engine thread runs for one call, in pieces where files or training passes lie between.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/train/scheduler.h"
#include "telemetry/instrument.h"
#include "telemetry/trace.h"
#include "tuft/worker/v1/model_actor.pb.h"
#include "worker/adapter_pager.h"
#include "worker/traced_engine.h"

namespace tuft::worker {

// Who called, and when.
struct Caller {
  telemetry::SpanContext trace;
  v1::CallIds ids;
  Nanos arrived = 0;  // Clock::monotonic()
};

template <typename Response>
using Reply = std::function<void(Result<Response>)>;

struct AdapterLimits {
  int rank_max = 256;
};

// What operations record. Bound beforehand.
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

class Operation;
class PassRecorder;
class StepBatch;

// What operations work with; all of it belongs to the engine thread.
struct Bench {
  TracedEngine& engine;
  AdapterPager& adapters;
  const Clock& clock;
  const std::string& base_model;
  const OperationMetrics& metrics;
  engine::TrainScheduler& trainer;
  PassRecorder& passes;
  StepBatch& steps;
  AdapterLimits limits;
  // Drops the samples that run on a sampler, before it is removed.
  std::function<void(const engine::AdapterId&)> cancel_samples;
  // To be called when the training scheduler has answered an operation that is kTraining.
  std::function<void(Operation&)> trained;
  std::unordered_map<engine::AdapterId, int> ranks = {};
};

// The engine's ids: samplers have a name space of their own.
engine::AdapterId training_adapter(const std::string& adapter_id);
engine::AdapterId sampler_adapter(const std::string& sampler_id);

class Operation {
 public:
  enum class Progress : uint8_t {
    kFile,      // run_file() on the file thread, then advance again
    kTraining,  // with the training scheduler; advance again after Bench::trained()
    kStepping,  // in Bench::steps; advance again when they were taken
    kDone,      // answered
  };

  virtual ~Operation() = default;
  // Operations of one lane run one after the other, in order of arrival.
  virtual const std::string& lane() const = 0;
  // True: it may be advanced to kTraining while those before it in its lane still are.
  virtual bool trains() const { return false; }
  // True: what waits in its lane is not run any more, but fails; what has begun goes on, but for training.
  virtual bool ends_lane() const { return false; }
  // False: it goes on although its adapter waits in a page.
  virtual bool needs_adapter() const { return true; }
  // Of the call.
  virtual telemetry::SpanContext cause() const { return {}; }
  // Engine thread.
  virtual Progress advance(Bench& bench) = 0;
  // File thread. Must not touch the engine.
  virtual void run_file() {}
  // File thread: run_file() threw. The next advance() answers with it.
  virtual void file_failed(const Error& error) = 0;
  // Answers with an error instead; after it the operation is dropped. Engine thread, or none left running.
  virtual void fail(const Error& error) = 0;
};

std::unique_ptr<Operation> make_create_adapter(v1::CreateAdapterRequest request, Caller caller,
                                               Reply<v1::CreateAdapterResponse> reply);
std::unique_ptr<Operation> make_remove_adapter(const v1::RemoveAdapterRequest& request, Caller caller,
                                               Reply<v1::RemoveAdapterResponse> reply);
// `request` is what to_train_request() made.
std::unique_ptr<Operation> make_forward_backward(const std::string& adapter_id, engine::TrainRequest request,
                                                 Caller caller, Reply<v1::ForwardBackwardResponse> reply);
std::unique_ptr<Operation> make_optim_step(v1::OptimStepRequest request, Caller caller,
                                           Reply<v1::OptimStepResponse> reply);
std::unique_ptr<Operation> make_save_state(v1::SaveStateRequest request, Caller caller,
                                           Reply<v1::SaveStateResponse> reply);
std::unique_ptr<Operation> make_load_state(v1::LoadStateRequest request, Caller caller,
                                           Reply<v1::LoadStateResponse> reply);
std::unique_ptr<Operation> make_add_sampler(v1::AddSamplerRequest request, Caller caller,
                                            Reply<v1::AddSamplerResponse> reply);
std::unique_ptr<Operation> make_remove_sampler(const v1::RemoveSamplerRequest& request, Caller caller,
                                               Reply<v1::RemoveSamplerResponse> reply);
std::unique_ptr<Operation> make_publish_adapter(v1::PublishAdapterRequest request, Caller caller,
                                                Reply<v1::PublishAdapterResponse> reply);
std::unique_ptr<Operation> make_save_sampler(v1::SaveSamplerRequest request, Caller caller,
                                             Reply<v1::SaveSamplerResponse> reply);

}  // namespace tuft::worker
