// Sampling sessions (samplers) and the frozen adapters behind them.
//
// A sampler samples from the base model or from one checkpoint, as it was when the sampler was made: when a checkpoint
// is replaced or deleted, its samplers keep the old files. Samplers of one checkpoint share one adapter in the worker.
// Adapters are loaded in the background, and again when the worker was restarted; those of a version that was just
// published are in the worker already, and may be sampled from before their files are there. What of them is in memory,
// the worker decides.
//
// Samples have no order among themselves; the seq_id only tells repetitions.
//
// A stream is a sample without a sampler and without a future: its tokens go to a listener as they are drawn. The
// adapter of one that no sampler uses stays loaded for kUnusedAdapterKept, for the next stream.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/checkpoint_store.h"
#include "control/disk_worker.h"
#include "control/future_store.h"
#include "control/generation.h"
#include "control/gone_samplers.h"
#include "control/model_backend.h"
#include "control/persistence.h"
#include "control/published_version.h"
#include "control/sessions.h"
#include "control/types.h"
#include "control/usage.h"
#include "telemetry/trace.h"

namespace tuft::control {

inline constexpr Nanos kUnusedAdapterKept = 300 * kSecond;

// Thread-safe. Held by a shared_ptr: answers of actors that come after its end are dropped.
class SamplingController : public std::enable_shared_from_this<SamplingController> {
 public:
  struct Parts {
    std::shared_ptr<void> owner;  // of all that follows: an answer may come when only the controller is left
    const config::ServerConfig& config;
    const Clock& clock;
    const ModelBackends& backends;
    Sessions& sessions;
    FutureStore& futures;
    CheckpointStore& checkpoints;
    DiskWorker& disk;
    Persistence& persistence;
    Usage& usage;
  };
  explicit SamplingController(const Parts& parts);

  Result<SamplerId> create_session(const UserId& user, const CreateSamplingSession& request,
                                   const telemetry::SpanContext& trace);
  // A sampler on a checkpoint that was just saved for it.
  Result<SamplerId> create_on(const UserId& user, const SessionId& session, int64_t seq_id,
                              const CheckpointStore::Ptr& checkpoint, const telemetry::SpanContext& trace);
  // Under what a version is published: another one each time.
  std::string new_worker_id(const CheckpointPath& path);
  // The adapter of this checkpoint is in the worker already, as `version`. Its files may still be missing: what is
  // known of them follows. Goes after kUnusedAdapterKept where nobody samples from it.
  void take(const std::shared_ptr<ModelBackend>& backend, const CheckpointStore::Ptr& checkpoint,
            PublishedVersion& version);
  // False: nobody needs the files any more.
  bool file_written(const ModelBackend& backend, const CheckpointStore::Ptr& checkpoint);
  // There will be none: its samplers live as long as this life of the worker. False: it has none.
  bool file_failed(const ModelBackend& backend, const CheckpointStore::Ptr& checkpoint);
  Result<SamplerInfo> get_sampler(const UserId& user, const SamplerId& sampler) const;
  std::vector<SamplerId> samplers_of(const UserId& user, const SessionId& session) const;
  Result<Submitted> sample(const UserId& user, const Sample& request, const telemetry::SpanContext& trace);

  // What a stream samples from: a sampler of the user, else a checkpoint, else the base model.
  struct StreamSource {
    std::shared_ptr<ModelBackend> backend;
    CheckpointStore::Ptr checkpoint = nullptr;
    SamplerId sampler = {};
  };
  // See Generation::start() and cancel(). `request.model` is resolved already.
  Result<Generation::Number> start_stream(const UserId& user, const StreamSource& source, GenerationRequest request,
                                          const telemetry::SpanContext& trace, GenerationListener listener);
  void cancel_stream(Generation::Number number);

  // At the start: one that a former life of the server had, on the same checkpoint (null: the base model).
  void restore(const SamplerRecord& record, const std::shared_ptr<ModelBackend>& backend,
               const CheckpointStore::Ptr& checkpoint);
  // At the start: one that cannot come back. `why`: a sentence for its user.
  void note_gone(const SamplerId& sampler, const UserId& user, std::string why) {
    gone_.note(sampler, user, std::move(why));
  }
  void on_worker_ready(const std::shared_ptr<ModelBackend>& backend);
  // Drops the longest unused sampler of the user that an unnamed save made and that is idle, and its checkpoint, which
  // counts no more. `limit`: the key of the configuration that asks for room. False: there is none.
  bool drop_unnamed(const UserId& user, std::string_view limit);
  void sweep();
  // Fails what waits. Call after FutureStore::shut_down().
  void shut_down();
  void close_session(const UserId& user, const SessionId& session);

 private:
  struct Adapter;
  using AdapterPtr = std::shared_ptr<Adapter>;

  // Of a sample that has no future.
  struct Stream {
    Generation::Number number = 0;
    GenerationListener listener;
    AdapterPtr adapter;
    bool cancelled = false;  // this and the next: under the controller's lock
    actor::Cancel cancel_call;
  };

  struct Operation {
    FuturePtr future;                // null: a stream
    std::unique_ptr<Stream> stream;  // null: a future
    UserId user;
    OperationKeysPtr keys;
    // These four are under the controller's lock until it has its turn: a cancel lets go of the request.
    worker::v1::SampleRequest request;
    ByteAccount::Hold memory;  // what the request and the operation itself take
    bool has_turn = false;
    bool dropped = false;
    std::shared_ptr<ModelBackend> backend;
    int num_samples = 0;
    int64_t cost = 0;  // estimated tokens (dispatch_queue.h)
    Nanos placed = 0;
    Nanos sent = 0;
    telemetry::Span span;          // sampling_controller.run_sample
    telemetry::Span backend_span;  // sampling_backend.sample
  };
  using OperationPtr = std::shared_ptr<Operation>;

  // What is under the controller's lock: everything but the first three.
  struct Adapter {
    std::string key;
    std::shared_ptr<ModelBackend> backend;
    CheckpointStore::Ptr checkpoint;  // null: the base model

    std::shared_ptr<const CheckpointFiles> files;  // null: the base model, or they are still being written
    std::optional<Error> lost;                     // they will never be there
    std::string worker_id;                         // of its place in the worker; a new one for each load
    uint64_t loaded_generation = 0;                // in which life of the worker it is loaded; 0: in none
    bool loading = false;
    std::optional<Error> load_error;
    uint64_t load_error_generation = 0;
    bool released = false;  // nobody can find it any more
    int users = 0;          // samplers and streams
    int running = 0;        // on the way to the worker, or there
    Nanos last_used = 0;
    std::deque<OperationPtr> waiting;
  };

  struct Sampler {
    UserId user;
    SessionId session;
    AdapterPtr adapter;
    Nanos last_used = 0;
  };

  // sampling_controller.cc
  Result<SamplerId> add(const UserId& user, const SessionId& session, int64_t seq_id,
                        const std::shared_ptr<ModelBackend>& backend, const CheckpointStore::Ptr& checkpoint,
                        const telemetry::SpanContext& trace);
  std::vector<SamplerId> samplers_of_locked(const UserId& user) const TUFT_REQUIRES(mutex_);
  static std::string adapter_key(const ModelBackend& backend, const CheckpointStore::Ptr& checkpoint);
  AdapterPtr adapter_for_locked(const std::shared_ptr<ModelBackend>& backend, const CheckpointStore::Ptr& checkpoint)
      TUFT_REQUIRES(mutex_);
  // A sampler that nothing runs on.
  struct Idle {
    SamplerId id;
    SessionId session;
    Nanos last_used = 0;
    bool unnamed = false;
  };
  std::vector<Idle> idle_samplers(const UserId& user) const;  // the longest unused first
  bool make_room(const UserId& user);
  Error unknown_sampler(const UserId& user, const SamplerId& sampler) const;
  void remove(const SamplerId& sampler);
  void release(const AdapterPtr& adapter);
  void let_go(Operation& operation, bool has_ended);
  void fail(const OperationPtr& operation, const Error& error);
  void complete(const OperationPtr& operation, Result<worker::v1::SampleResponse> result);

  // sampling_execution.cc
  static Error sampler_gone();
  static bool is_loaded(const Adapter& adapter);
  bool begin_load_locked(Adapter& adapter) TUFT_REQUIRES(mutex_);
  void dispatch(const AdapterPtr& adapter, const OperationPtr& operation);
  void load(const AdapterPtr& adapter, const OperationKeys& cause, const telemetry::SpanContext& trace);
  void on_loaded(const AdapterPtr& adapter, uint64_t generation, const Status& result);
  void unload(const AdapterPtr& adapter, const std::string& worker_id);
  void enqueue(const AdapterPtr& adapter, const OperationPtr& operation);
  bool start_turn(const AdapterPtr& adapter, const OperationPtr& operation);
  void start(const AdapterPtr& adapter, const OperationPtr& operation);
  void on_sampled(const AdapterPtr& adapter, const OperationPtr& operation, Result<worker::v1::SampleResponse> result);
  void resume(const AdapterPtr& adapter);
  std::vector<AdapterPtr> all_adapters() const;

  // sampling_streams.cc
  Status add_stream(const StreamSource& source, const OperationPtr& operation, OperationKeys& keys);
  actor::ModelActor::OnTokens token_relay(const OperationPtr& operation);
  void hold_cancel(const OperationPtr& operation, actor::Cancel cancel);
  void end_stream(Operation& operation, Result<worker::v1::SampleResponse> result);
  void cancel_streams();
  void drop_unused_adapters();

  // sampling_records.cc: what telemetry hears
  void begin_call(const Adapter& adapter, Operation& operation);
  static void describe_answer(Operation& operation, const worker::v1::SampleResponse& response);
  void record_sample(const Operation& operation, const worker::v1::SampleResponse& response) const;
  void record_failure(const Operation& operation, const Error& error) const;

  const Parts parts_;
  GoneSamplers gone_;
  mutable Mutex mutex_;
  bool shut_down_ TUFT_GUARDED_BY(mutex_) = false;
  uint64_t next_worker_id_ TUFT_GUARDED_BY(mutex_) = 1;
  Generation::Number last_stream_ TUFT_GUARDED_BY(mutex_) = 0;
  std::unordered_map<Generation::Number, OperationPtr> streams_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<SamplerId, Sampler> samplers_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, std::unordered_set<SamplerId>> samplers_by_user_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, AdapterPtr> adapters_ TUFT_GUARDED_BY(mutex_);
};

// Spans sampling_controller.*.
const telemetry::Tracer& sampling_controller_tracer();
// Spans sampling_backend.*.
const telemetry::Tracer& sampling_backend_tracer();

}  // namespace tuft::control
