// The control plane behind the HTTP edge: sessions, training runs, samplers, checkpoints and futures of all users.
//
// Thread-safe; no call blocks on a worker, a disk or a network: what takes longer becomes a future. Every call names
// the user and checks that what it touches is theirs: unknown and foreign ids are both kNotFound with the same message,
// so that nobody learns what exists.
//
// Order: operations of one run execute in seq_id order (1, 2, ...), whatever order they arrive in; one that arrives
// twice gets the first one's RequestId. An operation that fails has used up its number. Operations without seq_id run
// in order of arrival, after what is queued.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actor/model_actor.h"
#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "control/catalog.h"
#include "control/checkpoint_actions.h"
#include "control/generation.h"
#include "control/persistence.h"
#include "control/types.h"
#include "control/usage.h"
#include "telemetry/exposition.h"

namespace tuft::control {

class TraceExports;

class ControlPlane {
 public:
  // `actors`: one per supported model, in its order; they outlive this. Recreates adapters when an actor comes back.
  // `persistence`: what a former life of the server left, which comes back now, and where this one keeps its state;
  // null: nothing but checkpoints outlives it.
  static std::unique_ptr<ControlPlane> create(const config::ServerConfig& config,
                                              const std::vector<actor::ModelActor*>& actors, const Clock& clock,
                                              std::unique_ptr<Persistence> persistence = nullptr);
  virtual ~ControlPlane() = default;

  // kUnauthenticated for a missing key, kPermissionDenied for an unknown one; see ApiKeys.
  virtual Result<UserId> authenticate(std::string_view api_key) const = 0;
  // From now on these are the keys, and no others.
  virtual void replace_api_keys(const std::map<std::string, std::string>& user_by_key) = 0;

  virtual std::vector<SupportedModel> supported_models() const = 0;
  // Every model has a worker that answers, and the store of the server's state works.
  virtual bool ready() const = 0;

  virtual Result<SessionId> create_session(const UserId&, const CreateSession&) = 0;
  virtual Status heartbeat(const UserId&, const SessionId&) = 0;
  // Ends it now, as silence would later: its pending operations are cancelled, its runs saved where they have changed
  // (limits.save_before_expiry) and taken out of the worker, its samplers dropped. Returns before that is done; once
  // more is no error. kNotFound.
  virtual Status end_session(const UserId&, const SessionId&) = 0;

  // Submissions. `trace` is the server span of the request: the operation's spans become its children.
  virtual Result<Submitted> create_model(const UserId&, const CreateModel&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> unload_model(const UserId&, const RunId&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> forward_backward(const UserId&, tinker_public::ForwardBackwardRequest,
                                             const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> optim_step(const UserId&, const OptimStep&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> save_weights(const UserId&, const SaveWeights&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> save_weights_for_sampler(const UserId&, const SaveWeightsForSampler&,
                                                     const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> load_weights(const UserId&, const LoadWeights&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> sample(const UserId&, Sample, const telemetry::SpanContext& trace) = 0;

  virtual Result<SamplerId> create_sampling_session(const UserId&, const CreateSamplingSession&,
                                                    const telemetry::SpanContext& trace) = 0;
  virtual Result<ModelInfo> get_info(const UserId&, const RunId&) const = 0;
  virtual Result<SamplerInfo> get_sampler(const UserId&, const SamplerId&) const = 0;
  // Of a checkpoint that the user may load: their own or a public one, of this life of the server or a former one.
  virtual Result<WeightsInfo> weights_info(const UserId&, std::string_view tinker_path) const = 0;

  // Gives the future's snapshot: at once where it is finished, else when it finishes. `done` is called exactly once,
  // perhaps before wait_future returns, perhaps on another thread. kNotFound, or kGone once evicted.
  using WaitId = uint64_t;
  virtual WaitId wait_future(const UserId&, const RequestId&, std::function<void(Result<FutureSnapshot>)> done) = 0;
  // Nobody wants the result any more: a pending operation fails with kCancelled, at the worker too where it can be
  // stopped (a sample). What has ended, and training that a worker has begun, stays as it is. kNotFound, or kGone.
  virtual Status cancel_future(const UserId&, const RequestId&) = 0;
  // Ends a wait early: `done` gets the pending snapshot. Nothing where it was called already.
  virtual void end_wait(WaitId) = 0;

  virtual Catalog& catalog() = 0;
  virtual CheckpointActions& checkpoint_actions() = 0;
  virtual Usage& usage() = 0;
  virtual TraceExports& trace_exports() = 0;
  virtual Generation& generation() = 0;

  // Calls `done` once, when everything that was accepted until now outlives the server, or with kUnavailable where that
  // will take a while: what is answered to a client is to wait for it. Perhaps before this returns, perhaps on another
  // thread.
  virtual void when_durable(std::function<void(Status)> done) {  // NOLINT(performance-unnecessary-value-param): kept
    done({});
  }

  // The metrics of all workers that answer within a second; the others are left out. `done` is called once, perhaps
  // before this returns, perhaps on another thread.
  virtual void collect_worker_metrics(std::function<void(std::vector<telemetry::WorkerMetrics>)> done) = 0;

  // Time-driven work: gap timeouts, eviction. Call it about every 250 ms.
  virtual void sweep() = 0;
  // Fails what is pending with kUnavailable and ends every wait. New submissions are refused.
  virtual void shut_down() = 0;
};

}  // namespace tuft::control
