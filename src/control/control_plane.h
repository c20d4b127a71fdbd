// The control plane: sessions, training runs, samplers, checkpoints and futures of all users.
//
// Thread-safe. No call blocks on a worker, a disk or a network; longer operations become futures. Every call names the
// user and checks that the objects belong to this user. An unknown id and an id of another user return kNotFound with
// the same message, so that a user does not learn what exists.
//
// Operations of a run execute in the order of their seq_id (1, 2, ...), whatever the order of arrival. An operation
// that arrives twice gets the RequestId of the first. A failed operation has used its number. Operations without seq_id
// run in the order of arrival, after the queued ones.
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
#include "control/accounts/usage.h"
#include "control/checkpoints/checkpoint_actions.h"
#include "control/checkpoints/checkpoint_storage.h"
#include "control/observe/intake.h"
#include "control/persistence/persistence.h"
#include "control/sampling/generation.h"
#include "control/types/types.h"
#include "control/views/catalog.h"
#include "telemetry/exposition.h"
#include "telemetry_store/store.h"

namespace tuft::control {

class Observer;
class TraceExports;

// It has more than 25 methods because it is all that the edge may ask for: a method for each kind of request.
class ControlPlane {
 public:
  // `actors` has one actor per supported model, in the same order; they must outlive the control plane, which restores
  // adapters when an actor restarts. `persistence` holds the state of the previous server process, which is restored,
  // and keeps the state of this one; null: only checkpoints survive a restart. A view (Persistence::open_view) makes a
  // control plane for requests that read, whose actors are never started and whose sweep() must not be called.
  // `telemetry` gets the telemetry of the server and its workers, and must outlive the control plane; null: it is not
  // kept. `storage` has the checkpoints; null: the directory config.checkpoint_dir.
  static std::unique_ptr<ControlPlane> create(const config::ServerConfig& config,
                                              const std::vector<actor::ModelActor*>& actors, const Clock& clock,
                                              std::unique_ptr<Persistence> persistence = nullptr,
                                              telemetry_store::Store* telemetry = nullptr,
                                              std::unique_ptr<CheckpointStorage> storage = nullptr);
  virtual ~ControlPlane() = default;

  // Returns kUnauthenticated for a missing key and kPermissionDenied for an unknown one; see ApiKeys.
  virtual Result<UserId> authenticate(std::string_view api_key) const = 0;
  // Replaces all API keys.
  virtual void replace_api_keys(const std::map<std::string, std::string>& user_by_key) = 0;

  virtual std::vector<SupportedModel> supported_models() const = 0;
  // Returns true if every model has a worker that answers and the store works.
  virtual bool ready() const = 0;

  virtual Result<SessionId> create_session(const UserId&, const CreateSession&) = 0;
  // Returns kGone for a session of the user that has ended, and kNotFound for an unknown one.
  virtual Status heartbeat(const UserId&, const SessionId&) = 0;
  // Ends a session as its expiry would: cancels its pending operations, saves its changed runs
  // (limits.save_before_expiry), unloads them, and drops its samplers. Returns before that is done; each run counts
  // against the user's limit until it is gone. Ending a session twice is not an error. Returns kNotFound for an unknown
  // session. `finish`: the client's reason, which is kept.
  virtual Status end_session(const UserId&, const SessionId&, const SessionFinish& finish) = 0;

  // Submissions. `trace` is the server span of the request: the operation's spans become its children.
  virtual Result<Submitted> create_model(const UserId&, const CreateModel&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> unload_model(const UserId&, const RunId&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> forward_backward(const UserId&, tinker_public::ForwardBackwardRequest,
                                             const telemetry::SpanContext& trace) = 0;
  // Keeps a custom loss for the passes of the session's runs. Works for about a millisecond.
  virtual Result<Submitted> create_custom_loss(const UserId&, const CreateCustomLoss&,
                                               const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> optim_step(const UserId&, const OptimStep&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> save_weights(const UserId&, const SaveWeights&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> save_weights_for_sampler(const UserId&, const SaveWeightsForSampler&,
                                                     const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> save_weights_external(const UserId&, const SaveWeightsExternal&,
                                                  const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> load_weights(const UserId&, const LoadWeights&, const telemetry::SpanContext& trace) = 0;
  virtual Result<Submitted> sample(const UserId&, Sample, const telemetry::SpanContext& trace) = 0;
  // Uses up the number of an operation that the caller refuses because of its fields, so that the run's next
  // operation does not wait for it. Returns the error to answer with: refused.why, or, if the number could not be used
  // up now, why the client has to send the same again later.
  virtual Error refuse(const UserId&, const RefusedOperation& refused, const telemetry::SpanContext& trace) = 0;

  virtual Result<SamplerId> create_sampling_session(const UserId&, const CreateSamplingSession&,
                                                    const telemetry::SpanContext& trace) = 0;
  virtual Result<ModelInfo> get_info(const UserId&, const RunId&) const = 0;
  virtual Result<SamplerInfo> get_sampler(const UserId&, const SamplerId&) const = 0;
  // Describes a checkpoint that the user may read: an own or a public one.
  virtual Result<WeightsInfo> weights_info(const UserId&, std::string_view tinker_path) const = 0;

  // Passes the snapshot of a future to `done` when the future is finished. `done` is called exactly once, possibly
  // before wait_future() returns, or on another thread. Errors: kNotFound, or kGone after eviction.
  using WaitId = uint64_t;
  virtual WaitId wait_future(const UserId&, const RequestId&, std::function<void(Result<FutureSnapshot>)> done) = 0;
  // Cancels a pending operation, which fails with kCancelled; a sample is stopped at the worker, too. Finished
  // operations and training that a worker has begun are not affected. Errors: kNotFound, or kGone after eviction.
  virtual Status cancel_future(const UserId&, const RequestId&) = 0;
  // Ends a wait early: `done` gets the pending snapshot. Has no effect if `done` was already called.
  virtual void end_wait(WaitId) = 0;
  // Confirms the completions of a client's samples up to the cursor `after`, and passes those that follow to `done`: at
  // once if there are some or if `waits` is false, else with the next one or when end_watch() is called. `done` is
  // called once, possibly before watch_samples() returns, or on another thread. Returns kNotFound, without calling it,
  // for the sampling session.
  virtual Result<WaitId> watch_samples(const UserId&, const SampleFeed&, int64_t after, bool waits,
                                       std::function<void(SampleNews)> done) = 0;
  // Has no effect if `done` was already called.
  virtual void end_watch(const SampleFeed&, WaitId) = 0;

  virtual Catalog& catalog() = 0;
  virtual CheckpointActions& checkpoint_actions() = 0;
  virtual Usage& usage() = 0;
  virtual TraceExports& trace_exports() = 0;
  virtual Generation& generation() = 0;
  // Takes the telemetry of users' own programs.
  virtual Intake& intake() = 0;
  virtual Observer& observer() = 0;

  // Calls `done` once, when everything accepted so far is stored durably, or with kUnavailable if that takes too long.
  // An answer that confirms state to a client must wait for it. `done` may be called before when_durable() returns, or
  // on another thread.
  virtual void when_durable(std::function<void(Status)> done) {  // NOLINT(performance-unnecessary-value-param): kept
    done({});
  }

  // Collects the metrics of all workers that answer within a second. `done` is called once, possibly before this
  // returns, or on another thread.
  virtual void collect_worker_metrics(std::function<void(std::vector<telemetry::WorkerMetrics>)> done) = 0;

  // Returns the user of a session that is there or has ended in this server's life, as far as it is remembered (see
  // EndedSessions); empty: unknown. For StoreOptions::owner_of.
  virtual std::string owner_of(std::string_view session) const = 0;

  // Does time-driven work such as gap timeouts and eviction. To be called about every 250 ms, by one thread at a time,
  // which is no I/O thread: it can take long for a user who has much.
  virtual void sweep() = 0;
  // Fails pending operations with kUnavailable, ends all waits, and refuses new submissions. Waits up to half a second
  // for the last telemetry of the workers if it is kept, so it has to be called before they are stopped.
  virtual void shut_down() = 0;
};

}  // namespace tuft::control
