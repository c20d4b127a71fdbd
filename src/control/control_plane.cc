#include "control/control_plane.h"

#include <optional>
#include <unordered_set>
#include <utility>

#include "control/accounts/access_tokens.h"
#include "control/accounts/api_keys.h"
#include "control/accounts/usage_ledger.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/checkpoints/directory_storage.h"
#include "control/checkpoints/disk_checkpoint_actions.h"
#include "control/control_reports.h"
#include "control/futures/future_store.h"
#include "control/observe/observer_impl.h"
#include "control/observe/telemetry_feed.h"
#include "control/persistence/restore_plan.h"
#include "control/queues/disk_worker.h"
#include "control/sampling/generation_impl.h"
#include "control/sampling/sampling_controller.h"
#include "control/sessions/session_description.h"
#include "control/sessions/sessions.h"
#include "control/training/training_controller.h"
#include "control/views/catalog_impl.h"
#include "control/views/queue_state.h"
#include "control/views/trace_exports.h"
#include "control/worker_events.h"
#include "control/workers/model_backend.h"
#include "control/workers/worker_telemetry.h"
#include "metrics/tenants.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

// The destructor waits so long for a slow store.
constexpr Nanos kPersistenceGrace = kSecond;
// The shutdown waits so long for the last telemetry of the workers.
constexpr Nanos kFetchGrace = 500 * kMillisecond;

// The objects that the controllers share.
struct Core {
  Core(const config::ServerConfig& server, const std::vector<actor::ModelActor*>& actors, const Clock& clock,
       std::unique_ptr<Persistence> given, std::unique_ptr<CheckpointStorage> storage)
      : config(server),
        persistence(given != nullptr ? std::move(given) : std::make_unique<Persistence>()),
        usage(server.limits, clock, *persistence),
        backends(server.supported_models, actors),
        sessions(server.limits, clock, *persistence, usage),
        budget(server.limits),
        futures(server.limits, clock, *persistence, budget, server.telemetry.tenant_label),
        checkpoints(storage != nullptr ? std::move(storage)
                                       : make_directory_storage(server.checkpoint_dir, persistence->is_view()),
                    persistence->is_view()) {}

  const config::ServerConfig config;
  const std::unique_ptr<Persistence> persistence;
  UsageLedger usage;
  const ModelBackends backends;
  Sessions sessions;
  OperationBudget budget;
  FutureStore futures;
  CheckpointStore checkpoints;
  DiskWorker disk;
};

// Returns true once nothing is left of the session.
bool close_session(Core& core, TrainingController& training, SamplingController& sampling, const UserId& user,
                   const SessionId& session, SessionEnd why) {
  core.futures.cancel_session(
      session, Error{ErrorCode::kCancelled, "cancelled: " + core.sessions.ending_of(user, session), "session_ended"});
  sampling.samplers().close_session(user, session);
  sampling.records().close_session(session);
  training.custom_losses().close_session(user, session);
  return training.expiry().close_session(user, session, why);
}

// Nobody would read the samples of a client that is gone. Its training goes on: the next client may load the result.
void stop_sampling(Core& core, const SessionId& session) {
  const std::string limit = std::to_string(core.config.limits.sampling_silence_seconds);
  const size_t samples = core.futures.cancel_samples(
      session,
      Error{ErrorCode::kCancelled,
            "cancelled: nothing was heard of its session for " + limit +
                " s (limits.sampling_silence_seconds); a client that waits for samples sends heartbeats or polls",
            "session_silent"});
  if (samples == 0) return;
  telemetry::log_info("session.silent", "the samples of a silent session were cancelled",
                      {{"tuft.session_id", session.str()}, {"tuft.samples", samples}});
}

// It has a method for each request of the port, and passes most of them on to the part that does the work.
class ControlPlaneImpl final : public ControlPlane {
 public:
  ControlPlaneImpl(const config::ServerConfig& config, const std::vector<actor::ModelActor*>& actors,
                   const Clock& clock, std::unique_ptr<Persistence> persistence, telemetry_store::Store* telemetry,
                   std::unique_ptr<CheckpointStorage> storage)
      : keys_(config.authorized_users),
        access_tokens_(keys_, clock),
        core_(std::make_shared<Core>(config, actors, clock, std::move(persistence), std::move(storage))),
        sampling_(std::make_shared<SamplingController>(
            SamplingController::Parts{core_, core_->config, clock, core_->backends, core_->sessions, core_->budget,
                                      core_->futures, core_->checkpoints, *core_->persistence, core_->usage})),
        training_(TrainingController::create(TrainingController::Parts{
            core_, core_->config, clock, core_->backends, core_->sessions, core_->futures, core_->checkpoints,
            core_->disk, *core_->persistence, core_->usage, sampling_, telemetry})),
        checkpoint_actions_(std::make_shared<DiskCheckpointActions>(
            DiskCheckpointActions::Parts{core_, core_->config.limits, clock, core_->checkpoints, core_->disk,
                                         *core_->persistence, core_->usage, access_tokens_,
                                         [weak = std::weak_ptr(training_)](const Checkpoint& checkpoint) {
                                           const auto training = weak.lock();
                                           return training == nullptr || training->runs().restores_from(checkpoint);
                                         }})),
        catalog_(core_->sessions, training_->runs(), sampling_->samplers(), core_->checkpoints),
        generation_(core_->backends, core_->checkpoints, core_->budget, sampling_, clock),
        intake_(telemetry, core_->config.telemetry_store.disk_bytes_max,
                core_->config.telemetry_store.age_max_seconds * kSecond, clock),
        observer_({core_->config, clock, telemetry, keys_, core_->backends, core_->sessions, core_->budget,
                   core_->futures, core_->checkpoints, *checkpoint_actions_, training_->runs(), sampling_->samplers(),
                   training_->custom_losses(), core_->usage,
                   [&persistence = *core_->persistence] { return persistence.available(); }}) {
    core_->futures.set_queue_state_of([core = core_.get()](const Future& future) {
      return queue_state_of(future.keys, future.user, core->backends, core->budget);
    });
    core_->usage.set_describe_session([&sessions = core_->sessions](const SessionId& id) {
      auto project = sessions.project_of(id);
      if (!project) return std::optional<UsageLedger::SessionFacts>();
      return std::optional(UsageLedger::SessionFacts{std::move(*project), sessions.metadata_of(id)});
    });
    core_->usage.set_stored_bytes([&checkpoints = core_->checkpoints] { return checkpoints.used_by_user(); });
    trace_exports_ = std::make_shared<TraceExports>(
        TraceExports::Parts{clock, core_->backends, [&core = *core_](const UserId& user, const SessionId& session) {
                              return core.sessions.belongs_to(user, session) || core.usage.had_session(user, session);
                            }});
    core_->sessions.on_end(
        [core = std::weak_ptr(core_), weak_training = std::weak_ptr(training_),
         weak_sampling = std::weak_ptr(sampling_)](const UserId& user, const SessionId& session, SessionEnd why) {
          const auto shared = core.lock();
          const auto training = weak_training.lock();
          const auto sampling = weak_sampling.lock();
          return shared != nullptr && training != nullptr && sampling != nullptr &&
                 close_session(*shared, *training, *sampling, user, session, why);
        });
    core_->sessions.on_silence([core = std::weak_ptr(core_)](const SessionId& session) {
      if (const auto shared = core.lock()) stop_sampling(*shared, session);
    });
    if (telemetry != nullptr) feed_ = std::make_unique<TelemetryFeed>(core_->backends, *telemetry);
    restore();
    for (const auto& backend : core_->backends.all()) watch_worker(backend, training_, sampling_);
    if (core_->persistence->is_view()) return;
    reports_.emplace(ControlReports::Parts{clock, core_->backends, core_->sessions, core_->budget, core_->futures,
                                           core_->checkpoints, training_->runs(), sampling_->records()});
  }

  ~ControlPlaneImpl() override {
    reports_.reset();
    ControlPlaneImpl::shut_down();
    core_->checkpoints.storage().cancel();
    core_->disk.stop();
    trace_exports_->stop();
    core_->usage.flush();
    core_->persistence->close(kPersistenceGrace);
  }

  Result<UserId> authenticate(std::string_view api_key) const override { return keys_.authenticate(api_key); }
  void replace_api_keys(const std::map<std::string, std::string>& user_by_key) override { keys_.replace(user_by_key); }

  std::vector<SupportedModel> supported_models() const override {
    std::vector<SupportedModel> models;
    for (const ModelPtr& served : core_->backends.models()) {
      const config::ModelConfig& model = served->config();
      models.push_back({model.model_name, model.max_model_len, model.training, model.sampling});
    }
    return models;
  }

  bool ready() const override {
    for (const ModelPtr& model : core_->backends.models()) {
      if (!model->ready()) return false;
    }
    return core_->persistence->available().ok();
  }

  Result<SessionId> create_session(const UserId& user, const CreateSession& request) override {
    return core_->sessions.create(user, request);
  }

  Status heartbeat(const UserId& user, const SessionId& session) override {
    Status touched = core_->sessions.touch(user, session);
    if (touched.ok() || core_->sessions.ending_of(user, session).empty()) return touched;
    return Error{ErrorCode::kGone, touched.error().message, touched.error().reason};
  }
  Status end_session(const UserId& user, const SessionId& session, const SessionFinish& finish) override {
    return core_->sessions.end(user, session, finish);
  }

  Result<Submitted> create_model(const UserId& user, const CreateModel& request,
                                 const telemetry::SpanContext& trace) override {
    const auto submit = [&]() -> Result<Submitted> {
      TUFT_TRY(check_metadata(request.user_metadata));
      return training_->submissions().create_model(user, request, trace);
    };
    return counted(OperationType::kCreateModel, submit(), [&] { return request.base_model; });
  }
  Result<Submitted> unload_model(const UserId& user, const RunId& run, const telemetry::SpanContext& trace) override {
    return of_run(OperationType::kUnloadModel, user, run, training_->submissions().unload_model(user, run, trace));
  }
  Result<Submitted> forward_backward(const UserId& user, tinker_public::ForwardBackwardRequest request,
                                     const telemetry::SpanContext& trace) override {
    const OperationType type = request.forward_only() ? OperationType::kForward : OperationType::kForwardBackward;
    const RunId run(request.model_id());
    return of_run(type, user, run, training_->submissions().forward_backward(user, std::move(request), trace));
  }
  Result<Submitted> create_custom_loss(const UserId& user, const CreateCustomLoss& request,
                                       const telemetry::SpanContext& trace) override {
    return counted(OperationType::kCreateCustomLoss, training_->custom_losses().create(user, request, trace),
                   [] { return std::string(); });
  }
  Result<Submitted> optim_step(const UserId& user, const OptimStep& request,
                               const telemetry::SpanContext& trace) override {
    return of_run(OperationType::kOptimStep, user, request.run,
                  training_->submissions().optim_step(user, request, trace));
  }
  Error refuse(const UserId& user, const RefusedOperation& refused, const telemetry::SpanContext& trace) override {
    return training_->submissions().refuse(user, refused, trace);
  }
  Result<Submitted> save_weights(const UserId& user, const SaveWeights& request,
                                 const telemetry::SpanContext& trace) override {
    return of_run(OperationType::kSaveWeights, user, request.run,
                  training_->submissions().save_weights(user, request, trace));
  }
  Result<Submitted> save_weights_for_sampler(const UserId& user, const SaveWeightsForSampler& request,
                                             const telemetry::SpanContext& trace) override {
    return of_run(OperationType::kSaveWeightsForSampler, user, request.run,
                  training_->submissions().save_weights_for_sampler(user, request, trace));
  }
  Result<Submitted> save_weights_external(const UserId& user, const SaveWeightsExternal& request,
                                          const telemetry::SpanContext& trace) override {
    return of_run(OperationType::kSaveWeightsExternal, user, request.run,
                  training_->submissions().save_weights_external(user, request, trace));
  }
  Result<Submitted> load_weights(const UserId& user, const LoadWeights& request,
                                 const telemetry::SpanContext& trace) override {
    const auto submit = [&]() -> Result<Submitted> {
      if (request.create) TUFT_TRY(check_metadata(request.create->user_metadata));
      if (request.access_token.empty()) return training_->submissions().load_weights(user, request, trace);
      LoadWeights load = request;
      load.access_token.clear();
      TUFT_ASSIGN(load.token_user, access_tokens_.user_of(user, request.access_token));
      return training_->submissions().load_weights(user, load, trace);
    };
    return of_run(OperationType::kLoadWeights, user, request.run, submit());
  }
  Result<Submitted> sample(const UserId& user, Sample request, const telemetry::SpanContext& trace) override {
    return counted(OperationType::kSample, sampling_->sample(user, request, trace), [&] {
      const auto sampler = sampling_->samplers().info(user, request.sampler);
      return sampler.ok() ? sampler->base_model : std::string();
    });
  }
  Result<SamplerId> create_sampling_session(const UserId& user, const CreateSamplingSession& request,
                                            const telemetry::SpanContext& trace) override {
    return sampling_->create_session(user, request, trace);
  }

  Result<ModelInfo> get_info(const UserId& user, const RunId& run) const override {
    return training_->runs().get_info(user, run);
  }
  Result<SamplerInfo> get_sampler(const UserId& user, const SamplerId& sampler) const override {
    return sampling_->samplers().info(user, sampler);
  }
  Result<WeightsInfo> weights_info(const UserId& user, std::string_view tinker_path) const override {
    TUFT_ASSIGN(const CheckpointStore::Ptr checkpoint, core_->checkpoints.find_readable(user, tinker_path));
    return WeightsInfo{checkpoint->base_model, checkpoint->lora_rank, checkpoint->train_unembed, checkpoint->train_mlp,
                       checkpoint->train_attn};
  }

  WaitId wait_future(const UserId& user, const RequestId& request,
                     std::function<void(Result<FutureSnapshot>)> done) override {
    SessionId session;
    auto explained = [core = core_, user, done = std::move(done)](Result<FutureSnapshot> snapshot) {
      if (snapshot.ok()) explain_queue(*snapshot, user, core->backends, core->budget);
      done(std::move(snapshot));
    };
    const WaitId wait = core_->futures.wait(user, request, std::move(explained), &session);
    if (!session.empty()) core_->sessions.note_alive(session);
    return wait;
  }
  Status cancel_future(const UserId& user, const RequestId& request) override {
    return core_->futures.cancel(user, request);
  }
  void end_wait(WaitId wait) override { core_->futures.end_wait(wait); }
  Result<WaitId> watch_samples(const UserId& user, const SampleFeed& feed, int64_t after, bool waits,
                               std::function<void(SampleNews)> done) override {
    TUFT_ASSIGN(const SessionId session, sampling_->samplers().session_of(user, feed.sampler));
    core_->sessions.note_alive(session);
    return core_->futures.watch(feed, after, waits, std::move(done));
  }
  void end_watch(const SampleFeed& feed, WaitId watch) override { core_->futures.end_watch(feed, watch); }

  void collect_worker_metrics(std::function<void(std::vector<telemetry::WorkerMetrics>)> done) override {
    collect_metrics(core_->backends, std::move(done));
  }

  std::string owner_of(std::string_view session) const override {
    return core_->sessions.owner_of(SessionId(session)).str();
  }

  void when_durable(std::function<void(Status)> done) override { core_->persistence->when_durable(std::move(done)); }

  Catalog& catalog() override { return catalog_; }
  CheckpointActions& checkpoint_actions() override { return *checkpoint_actions_; }
  Usage& usage() override { return core_->usage; }
  TraceExports& trace_exports() override { return *trace_exports_; }
  Generation& generation() override { return generation_; }
  Intake& intake() override { return intake_; }
  Observer& observer() override { return observer_; }

  void sweep() override {
    core_->persistence->sweep();
    core_->usage.sweep();
    core_->futures.sweep();
    core_->sessions.sweep();
    training_->drain().sweep();
    training_->resumption().sweep();
    training_->placement().sweep();
    training_->executor().sweep();
    training_->activity().sweep();
    sampling_->adapters().sweep();
    sampling_->records().sweep();
    checkpoint_actions_->sweep();
  }

  void shut_down() override {
    if (feed_ != nullptr) feed_->fetch_rest(kFetchGrace);
    core_->futures.shut_down();
    training_->resumption().shut_down();
    training_->executor().shut_down();
    sampling_->shut_down();
    for (const auto& backend : core_->backends.all()) {
      backend->training_queue().close();
      backend->sampling_queue().close();
    }
  }

 private:
  // Runs before any worker is ready and any client is served.
  void restore() {
    StoredState state = core_->persistence->take_state();
    for (const SamplerRecord& moved : follow_newest(state.samplers)) {
      core_->persistence->write({}, {core_->persistence->put(moved)}, {});
    }
    std::unordered_set<std::string> kept;
    for (const SamplerRecord& sampler : state.samplers) {
      if (sampler.checkpoint) kept.insert(sampler.checkpoint->path);
    }
    // A record that cannot be read may be that of the sampler that an ephemeral checkpoint belongs to.
    const bool is_view = core_->persistence->is_view();
    core_->checkpoints.scan(state.unreadable > 0 || is_view ? nullptr : &kept);
    if (!core_->persistence->enabled()) return;
    core_->usage.restore(state.usage, std::move(state.audit));
    const CheckpointIndex index{[this](const std::string& path) { return core_->checkpoints.find(path); },
                                [this](const RunId& run) { return core_->checkpoints.lists().newest_training(run); },
                                [this](const RunId& run, uint64_t future_number) {
                                  return core_->checkpoints.lists().saved_by(run, future_number);
                                }};
    const size_t unreadable = state.unreadable;
    std::vector<CustomLossRecord> custom_losses = std::move(state.custom_losses);
    const auto may_be_held = [this](const RunRecord& run) {
      const Result<ModelPtr> model = core_->backends.find(run.base_model);
      return model.ok() && (*model)->workers().front()->may_come_back() && !run.last_operation.empty();
    };
    RestorePlan plan =
        is_view ? plan_view(std::move(state), index) : plan_restore(std::move(state), index, may_be_held);
    for (const SessionRecord& session : plan.sessions) core_->sessions.restore(session);
    for (CustomLossRecord& loss : custom_losses) training_->custom_losses().restore(std::move(loss));
    for (const RestoredRun& run : plan.runs) training_->restorer().restore_run(run);
    for (const SamplerRecord& sampler : plan.samplers) restore_sampler(sampler, index);
    const size_t futures = plan.futures.size();
    core_->futures.restore(plan);
    if (is_view) return;  // its sessions do not end here
    for (const RestoredRun& run : plan.runs) {
      if (run.hopes()) training_->resumption().hope(run);
    }
    core_->sessions.sweep();  // those that were ending: before clients are heard
    telemetry::log_info("persistence.restored", "the state of the former server process was restored",
                        {{"tuft.sessions", plan.sessions.size()},
                         {"tuft.runs", plan.runs.size()},
                         {"tuft.samplers", plan.samplers.size()},
                         {"tuft.custom_losses", custom_losses.size()},
                         {"tuft.futures", futures},
                         {"tuft.futures_gone", plan.gone.size()},
                         {"tuft.unreadable", unreadable}});
  }

  // A sampling session whose checkpoint was replaced or deleted cannot be restored.
  void restore_sampler(const SamplerRecord& record, const CheckpointIndex& index) {
    const Result<ModelPtr> model = core_->backends.find(record.base_model);
    const CheckpointStore::Ptr checkpoint = record.checkpoint ? same_checkpoint(*record.checkpoint, index) : nullptr;
    if (model.ok() && (!record.checkpoint || checkpoint != nullptr)) {
      return sampling_->samplers().restore(record, *model, checkpoint);
    }
    if (core_->persistence->is_view()) return;
    core_->persistence->write({}, {core_->persistence->erase(record.id)}, {});
    sampling_->samplers().note_gone(
        record.id, record.user,
        model.ok() ? "its checkpoint " + record.checkpoint->path +
                         " was deleted or replaced, and the server was restarted since. Make a new "
                         "one on a checkpoint that is there"
                   : "the server was restarted and does not serve its base model any more");
    telemetry::log_warning("sampling_session.dropped",
                           model.ok() ? "a sampling session cannot be restored: its checkpoint was replaced or deleted"
                                      : "a sampling session cannot be restored: its base model is not served any more",
                           {{"tuft.sampling_session_id", record.id.str()}});
  }

  // Counts refused requests; accepted ones are counted when they end. Calls `base_model` for refused requests only.
  template <typename BaseModel>
  Result<Submitted> counted(OperationType type, Result<Submitted> submitted, BaseModel base_model) const {
    if (submitted.ok()) return submitted;
    const std::string name = base_model();
    const bool known = !name.empty() && core_->backends.find(name).ok();
    metrics::tenants().requests_terminal.add(1, {{"operation_type", operation_name(type)},
                                                 {"base_model", known ? std::string_view(name) : "unknown"},
                                                 {"status", "rejected"}});
    return submitted;
  }
  Result<Submitted> of_run(OperationType type, const UserId& user, const RunId& run,
                           Result<Submitted> submitted) const {
    return counted(type, std::move(submitted), [&] {
      const auto info = training_->runs().get_info(user, run);
      return info.ok() ? info->base_model : std::string();
    });
  }

  ApiKeys keys_;
  AccessTokens access_tokens_;
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<SamplingController> sampling_;
  const std::shared_ptr<TrainingController> training_;
  std::shared_ptr<TraceExports> trace_exports_;
  const std::shared_ptr<DiskCheckpointActions> checkpoint_actions_;
  CatalogImpl catalog_;
  GenerationImpl generation_;
  Intake intake_;
  std::unique_ptr<TelemetryFeed> feed_;  // null: telemetry is not kept
  ObserverImpl observer_;
  std::optional<ControlReports> reports_;  // nothing in a view
};

}  // namespace

std::unique_ptr<ControlPlane> ControlPlane::create(const config::ServerConfig& config,
                                                   const std::vector<actor::ModelActor*>& actors, const Clock& clock,
                                                   std::unique_ptr<Persistence> persistence,
                                                   telemetry_store::Store* telemetry,
                                                   std::unique_ptr<CheckpointStorage> storage) {
  return std::make_unique<ControlPlaneImpl>(config, actors, clock, std::move(persistence), telemetry,
                                            std::move(storage));
}

}  // namespace tuft::control
