#include "control/training/run_submissions.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/id.h"
#include "control/sessions/session_description.h"
#include "control/training/dense_bytes.h"
#include "control/training/recorded_logprobs.h"
#include "control/training/training_telemetry.h"

namespace tuft::control {
namespace {

constexpr std::string_view kUploadedLoss = "custom";  // the loss_fn of a loss that the client uploaded

// The most memory of metadata that stands in the record of a run, where TuFT has it.
constexpr size_t kMetadataInPlaceMax = 1024;

// The bytes of a token in a datum: its id and the inputs of its loss.
constexpr int64_t kBytesOfToken = 12;

// Requires that the request was accepted by dense_bytes().
int64_t dense_bytes_of(const worker::v1::ForwardBackwardRequest& pass) {
  const auto bytes = dense_bytes(pass.request());
  return bytes.ok() ? *bytes : 0;
}

// Returns the bytes of the payload, without the operation that holds it, and of the dense form of its sparse tensors.
int64_t bytes_of(const RunOperation::Payload& payload) {
  size_t bytes = 0;
  if (const auto* pass = std::get_if<worker::v1::ForwardBackwardRequest>(&payload)) {
    bytes = pass->SpaceUsedLong() + static_cast<size_t>(dense_bytes_of(*pass));
  } else if (const auto* save = std::get_if<SaveWeights>(&payload)) {
    bytes = save->name.size() + memory_of(save->user_metadata);
  } else if (const auto* sampler_save = std::get_if<SaveWeightsForSampler>(&payload)) {
    bytes = sampler_save->name.size() + memory_of(sampler_save->user_metadata);
  } else if (const auto* external = std::get_if<SaveWeightsExternal>(&payload)) {
    bytes = external->name.size() + memory_of(external->user_metadata);
    if (external->age_recipients) {
      for (const std::string& recipient : *external->age_recipients) bytes += sizeof(std::string) + recipient.size();
    }
  } else if (const auto* load = std::get_if<LoadWeights>(&payload)) {
    bytes = load->path.size();
  }
  return static_cast<int64_t>(bytes);
}

// Returns "<session>:train:<n>".
RunId run_id_of(const SessionId& session, int64_t model_seq_id) {
  return RunId(session.str() + ":train:" + std::to_string(model_seq_id));
}

std::string creation_key(const RunId& run) {
  return run.str() + "#create";
}

std::string unload_key(const RunId& run) {
  return run.str() + "#unload";
}

Submitted submitted(const FuturePtr& future) {
  return {future->request, future->keys.run, OperationKeysPtr(future, &future->keys), future->context};
}

Status check_model(const CreateModel& request, const config::ModelConfig& model) {
  if (!model.training) return training_disabled(model.model_name);
  if (request.lora.rank < 1 || request.lora.rank > model.max_lora_rank) {
    return invalid_argument("lora rank " + std::to_string(request.lora.rank) + " is not between 1 and " +
                                std::to_string(model.max_lora_rank) +
                                ", the max_lora_rank of this base model in the server's configuration",
                            "invalid_lora_rank");
  }
  if (!request.lora.train_attn && !request.lora.train_mlp && !request.lora.train_unembed) {
    return invalid_argument("at least one of train_attn, train_mlp and train_unembed must be true", "nothing_to_train");
  }
  return {};
}

// Returns false for what a run may do without the capability training: its user can still save what it has.
bool trains(OperationType type) {
  return type == OperationType::kForward || type == OperationType::kForwardBackward ||
         type == OperationType::kOptimStep;
}

bool is_at_least_zero(double value) {
  return std::isfinite(value) && value >= 0;
}
bool is_decay(double value) {
  return std::isfinite(value) && value >= 0 && value < 1;
}

std::optional<Error> refusal_of_dimuon(const OptimStep& step) {
  const auto refuse = [](const char* what) { return invalid_argument(std::string(what), "invalid_optimizer_params"); };
  if (!is_at_least_zero(step.learning_rate)) return refuse("optimizer_params.learning_rate must be a number >= 0");
  if (!is_decay(step.beta1)) return refuse("optimizer_params.beta1 must be at least 0 and less than 1");
  if (!is_at_least_zero(step.grad_clip_norm)) return refuse("optimizer_params.grad_clip_norm must be finite");
  return std::nullopt;
}

// The parameters of another optimizer than the run's would train in another way than either side expects.
std::optional<Error> refusal_of_optimizer(const Run& run, const OptimStep& step) {
  if (run.optimizer == step.optimizer) return std::nullopt;
  const std::string theirs(optimizer_name(step.optimizer));
  const std::string ours(optimizer_name(run.optimizer));
  return invalid_argument("this step has the parameters of " + theirs + ", and this model was created with " + ours +
                              "; send the parameters of " + ours +
                              (run.optimizer == Optimizer::kAdamW ? " (adam_params)" : " (optimizer_params)") +
                              ", or create a model with the optimizer " + theirs,
                          "optimizer_mismatch");
}

std::optional<Error> refusal_of_step(const OptimStep& step) {
  if (step.optimizer == Optimizer::kDimuon) return refusal_of_dimuon(step);
  const auto refuse = [](const char* what) { return invalid_argument(std::string(what), "invalid_adam_params"); };
  if (!is_at_least_zero(step.learning_rate)) return refuse("adam_params.learning_rate must be a number >= 0");
  if (!is_decay(step.beta1)) return refuse("adam_params.beta1 must be at least 0 and less than 1");
  if (!is_decay(step.beta2)) return refuse("adam_params.beta2 must be at least 0 and less than 1");
  if (!is_at_least_zero(step.eps)) return refuse("adam_params.eps must be a number >= 0");
  if (!is_at_least_zero(step.weight_decay)) return refuse("adam_params.weight_decay must be a number >= 0");
  if (!is_at_least_zero(step.grad_clip_norm)) return refuse("adam_params.grad_clip_norm must be a number >= 0");
  return std::nullopt;
}

// Returns the refusal of an invalid checkpoint name, or of too much metadata. An empty name is valid: the server
// chooses one.
template <typename Save>
std::optional<Error> refusal_of_save(const Save& save) {
  Status checked = save.name.empty() ? Status() : check_checkpoint_name(save.name);
  if (checked.ok()) checked = check_checkpoint_metadata(save.user_metadata);
  return checked.ok() ? std::nullopt : std::optional<Error>(checked.error());
}

CreateModel model_of(const NewModel& request, const Checkpoint& checkpoint, Optimizer optimizer) {
  CreateModel model;
  model.session = request.session;
  model.model_seq_id = request.model_seq_id;
  model.base_model = checkpoint.base_model;
  model.user_metadata = request.user_metadata;
  model.lora.rank = checkpoint.lora_rank;
  model.lora.train_attn = checkpoint.train_attn;
  model.lora.train_mlp = checkpoint.train_mlp;
  model.lora.train_unembed = checkpoint.train_unembed;
  model.optimizer = optimizer;
  return model;
}

// Optimizer state keeps its optimizer.
Result<Optimizer> optimizer_of(const LoadWeights& request, const Checkpoint& checkpoint) {
  const std::optional<Optimizer>& wanted = request.create->optimizer;
  if (!request.optimizer) return wanted.value_or(Optimizer::kAdamW);
  if (wanted && *wanted != checkpoint.optimizer) return other_optimizer(checkpoint, *wanted);
  return checkpoint.optimizer;
}

RunPtr make_run(const UserId& user, const CreateModel& request, const ModelPtr& model, double lora_alpha,
                const Clock& clock) {
  auto run = std::make_shared<Run>(model, model->for_training(clock.monotonic()), request.lora);
  run->id = run_id_of(request.session, request.model_seq_id);
  run->user = user;
  run->session = request.session;
  run->optimizer = request.optimizer;
  run->seed = request.lora.seed.value_or(random_u64());
  run->lora_alpha = lora_alpha;
  run->user_metadata = request.user_metadata;
  run->metadata_apart = memory_of(request.user_metadata) > kMetadataInPlaceMax;
  run->created_at = iso_time(clock.wall());
  return run;
}

}  // namespace

// Admits `operation` with its payload. operation.future stays null if the request has come before.
Result<Submitted> RunSubmissions::admit(const Run& run, RunOperation& operation, const std::string& key,
                                        const telemetry::SpanContext& trace, FutureStore::Weight weight) {
  OperationKeys keys = keys_of(run);
  keys.operation = operation.type;
  keys.seq_id = operation.seq_id;
  weight.payload_bytes = bytes_of(operation.payload);
  TUFT_ASSIGN(auto admission, parts_.futures.admit(run.user, std::move(keys), key, trace, weight));
  const Submitted answer = submitted(admission.future);
  if (admission.is_new) {
    operation.future = std::move(admission.future);
    operation.memory = std::move(admission.memory);
  }
  return answer;
}

Result<Submitted> RunSubmissions::create_model(const UserId& user, const CreateModel& request,
                                               const telemetry::SpanContext& trace) {
  TUFT_TRY(parts_.sessions.touch(user, request.session));
  if (request.model_seq_id < 0) return invalid_argument("model_seq_id must not be negative", "invalid_model_seq_id");
  const std::string key = creation_key(run_id_of(request.session, request.model_seq_id));
  if (const FuturePtr known = parts_.futures.find_by_key(user, key)) return submitted(known);
  TUFT_ASSIGN(const ModelPtr model, parts_.backends.find(request.base_model));
  TUFT_TRY(check_model(request, model->config()));
  auto operation = std::make_shared<RunOperation>();
  operation->type = OperationType::kCreateModel;
  const double lora_alpha = static_cast<double>(request.lora.rank) * model->config().lora_alpha_ratio;
  return admit_creation(user, request, model, lora_alpha, operation, trace);
}

Result<Submitted> RunSubmissions::create_from_checkpoint(const UserId& user, const LoadWeights& request,
                                                         const telemetry::SpanContext& trace) {
  const NewModel& create = *request.create;
  TUFT_TRY(parts_.sessions.touch(user, create.session));
  if (create.model_seq_id < 0) return invalid_argument("model_seq_id must not be negative", "invalid_model_seq_id");
  const std::string key = creation_key(run_id_of(create.session, create.model_seq_id));
  const FuturePtr known = parts_.futures.find_by_key(user, key);
  if (known != nullptr && known->operation == OperationType::kLoadWeights) return submitted(known);
  TUFT_ASSIGN(const CheckpointPtr checkpoint, parts_.loader.find(user, request));
  if (!create.base_model.empty() && create.base_model != checkpoint->base_model) {
    return invalid_argument("checkpoint " + checkpoint->path.str() + " was made for base model " +
                                checkpoint->base_model + ", not for " + create.base_model,
                            "checkpoint_mismatch");
  }
  TUFT_ASSIGN(const ModelPtr base, parts_.backends.find(checkpoint->base_model));
  TUFT_ASSIGN(const Optimizer optimizer, optimizer_of(request, *checkpoint));
  const CreateModel model = model_of(create, *checkpoint, optimizer);
  TUFT_TRY(check_model(model, base->config()));
  auto operation = std::make_shared<RunOperation>();
  operation->type = OperationType::kLoadWeights;
  operation->payload = request;
  operation->checkpoint = checkpoint;
  return admit_creation(user, model, base, checkpoint->lora_alpha, operation, trace);
}

// Adds the run that `operation` creates.
Result<Submitted> RunSubmissions::admit_creation(const UserId& user, const CreateModel& request, const ModelPtr& model,
                                                 double lora_alpha, const OperationPtr& operation,
                                                 const telemetry::SpanContext& trace) {
  // A new run must not get results or checkpoints of a former run with its id. The result of the unloading is the last
  // that is removed.
  const RunId id = run_id_of(request.session, request.model_seq_id);
  if (parts_.futures.find_by_key(user, unload_key(id)) != nullptr || parts_.runs.has_left_checkpoints(id)) {
    return invalid_argument("model_seq_id " + std::to_string(request.model_seq_id) +
                                " of this session belongs to a model that was unloaded; use a number that this session "
                                "has not used",
                            "model_seq_id_used");
  }
  TUFT_ASSIGN(const RunPtr run, parts_.runs.add(make_run(user, request, model, lora_alpha, parts_.clock)));
  // The session may have begun to end before it could see the run.
  const Status alive = parts_.sessions.touch(user, request.session);
  auto answer =
      alive.ok() ? admit(*run, *operation, creation_key(run->id), trace, {}) : Result<Submitted>(alive.error());
  // An equal request may have got the same run, and be admitted although this one is not.
  const bool is_admitted = operation->future != nullptr;
  if (parts_.runs.end_creation(run, is_admitted)) {
    parts_.executor.close(run, answer.ok() ? parts_.runs.unknown(user, id) : answer.error());
  }
  if (!is_admitted) return answer;
  bool exists = false;
  {
    MutexLock lock(run->mutex);
    exists = run->created;
  }
  if (exists) {
    FutureValue known = CreateModelResult{run->id};
    if (operation->checkpoint != nullptr) known = LoadWeightsResult{operation->checkpoint->path.str(), run->id};
    parts_.futures.complete(operation->future, std::move(known));
    return answer;
  }
  operation->creates_run = true;
  start_operation_span(*run, *operation);
  parts_.executor.enqueue(run, operation);
  return answer;
}

Result<Submitted> RunSubmissions::unload_model(const UserId& user, const RunId& run_id,
                                               const telemetry::SpanContext& trace) {
  const std::string key = unload_key(run_id);
  if (const FuturePtr known = parts_.futures.find_by_key(user, key)) return submitted(known);
  TUFT_ASSIGN(const RunPtr run, parts_.runs.find(user, run_id));
  auto operation = std::make_shared<RunOperation>();
  operation->type = OperationType::kUnloadModel;
  auto answer = admit(*run, *operation, key, trace, {});
  if (operation->future != nullptr) parts_.executor.enqueue(run, operation);
  return answer;
}

Result<Submitted> RunSubmissions::submit(const UserId& user, const RunId& run_id, OperationType type,
                                         std::optional<int64_t> seq_id, RunOperation::Payload payload,
                                         std::optional<Error> refusal, const telemetry::SpanContext& trace) {
  TUFT_ASSIGN(const RunPtr run, parts_.runs.find(user, run_id));
  parts_.sessions.note_alive(run->session);
  if (seq_id && *seq_id == 0) seq_id.reset();
  if (seq_id && *seq_id < 0) return invalid_argument("seq_id must be positive; the first is 1", "invalid_seq_id");
  if (seq_id && *seq_id == std::numeric_limits<int64_t>::max()) {
    return invalid_argument("seq_id is too large: no other could follow it; the first is 1", "invalid_seq_id");
  }
  const std::string key = seq_id ? submission_key(run_id, *seq_id) : std::string();
  bool has_room = false;
  FutureStore::Weight weight;
  {
    MutexLock lock(run->mutex);
    has_room = run->log.has_room(seq_id, static_cast<size_t>(parts_.limits.reorder_window));
    weight.waits_for_gap = seq_id && *seq_id > run->log.next_seq_id();
  }
  if (!has_room && parts_.futures.find_by_key(user, key) == nullptr) {
    return Error{ErrorCode::kResourceExhausted,
                 std::to_string(parts_.limits.reorder_window) +
                     " operations of this run wait for a lower seq_id that has not arrived; send that one first, or "
                     "raise limits.reorder_window in the server's configuration",
                 "reorder_window"};
  }
  auto operation = std::make_shared<RunOperation>();
  operation->type = type;
  operation->seq_id = seq_id;
  operation->payload = std::move(payload);
  operation->refusal = std::move(refusal);
  if (trains(type) && !run->backend()->config().training)
    operation->refusal = training_disabled(run->backend()->name());
  auto answer = admit(*run, *operation, key, trace, weight);
  if (operation->future == nullptr) return answer;
  if (const auto* pass = std::get_if<worker::v1::ForwardBackwardRequest>(&operation->payload)) {
    const auto bytes = static_cast<int64_t>(pass->request().ByteSizeLong()) + dense_bytes_of(*pass);
    operation->cost += bytes / kBytesOfToken;
  }
  start_operation_span(*run, *operation);
  parts_.futures.on_cancel(*operation->future, [weak_run = std::weak_ptr(run), weak = std::weak_ptr(operation)] {
    const RunPtr log = weak_run.lock();
    const OperationPtr waiting = weak.lock();
    if (log != nullptr && waiting != nullptr) release_payload(*log, *waiting);
  });
  parts_.executor.enqueue(run, operation);
  return answer;
}

Result<Submitted> RunSubmissions::forward_backward(const UserId& user, tinker_public::ForwardBackwardRequest request,
                                                   const telemetry::SpanContext& trace) {
  const OperationType type = request.forward_only() ? OperationType::kForward : OperationType::kForwardBackward;
  const RunId run_id(request.model_id());
  const int64_t seq_id = request.seq_id();
  if (const auto bytes = dense_bytes(request); !bytes.ok()) {
    return submit(user, run_id, type, seq_id, {}, bytes.error(), trace);
  }
  worker::v1::ForwardBackwardRequest work;
  work.set_adapter_id(run_id.str());
  *work.mutable_request() = std::move(request);
  TUFT_ASSIGN(const RunPtr run, parts_.runs.find(user, run_id));
  if (Status joined = join(*run, work); !joined.ok()) {
    return submit(user, run_id, type, seq_id, {}, std::move(joined).error(), trace);
  }
  return submit(user, run_id, type, seq_id, std::move(work), std::nullopt, trace);
}

// Adds what the run's session has for the loss of a pass.
Status RunSubmissions::join(const Run& run, worker::v1::ForwardBackwardRequest& pass) const {
  const std::string& loss = pass.request().loss_fn();
  if (loss == kUploadedLoss) return parts_.custom_losses.put_into(run.user, run.session, pass);
  if (loss != kRecordedLoss) return {};
  return put_recorded_logprobs(parts_.records, run.user, run.session, *pass.mutable_request());
}

Result<Submitted> RunSubmissions::optim_step(const UserId& user, const OptimStep& request,
                                             const telemetry::SpanContext& trace) {
  TUFT_ASSIGN(const RunPtr run, parts_.runs.find(user, request.run));
  std::optional<Error> refusal = refusal_of_optimizer(*run, request);
  if (!refusal) refusal = refusal_of_step(request);
  return submit(user, request.run, OperationType::kOptimStep, request.seq_id, request, std::move(refusal), trace);
}

Result<Submitted> RunSubmissions::save_weights(const UserId& user, const SaveWeights& request,
                                               const telemetry::SpanContext& trace) {
  return submit(user, request.run, OperationType::kSaveWeights, request.seq_id, request, refusal_of_save(request),
                trace);
}

Result<Submitted> RunSubmissions::save_weights_for_sampler(const UserId& user, const SaveWeightsForSampler& request,
                                                           const telemetry::SpanContext& trace) {
  std::optional<Error> refusal = refusal_of_save(request);
  if (request.name.empty() && request.sampling_session_seq_id && *request.sampling_session_seq_id < 0) {
    refusal = invalid_argument("sampling_session_seq_id must not be negative", "invalid_sampling_session_seq_id");
  }
  return submit(user, request.run, OperationType::kSaveWeightsForSampler, request.seq_id, request, std::move(refusal),
                trace);
}

Result<Submitted> RunSubmissions::save_weights_external(const UserId& user, const SaveWeightsExternal& request,
                                                        const telemetry::SpanContext& trace) {
  std::optional<Error> refusal = refusal_of_save(request);
  if (request.name.empty()) refusal = invalid_argument("path is required", "invalid_checkpoint_name");
  return submit(user, request.run, OperationType::kSaveWeightsExternal, request.seq_id, request, std::move(refusal),
                trace);
}

Error RunSubmissions::refuse(const UserId& user, const RefusedOperation& refused, const telemetry::SpanContext& trace) {
  if (refused.seq_id.value_or(0) == 0) return refused.why;  // it holds nobody up
  const auto used_up = submit(user, refused.run, refused.type, refused.seq_id, {}, refused.why, trace);
  return used_up.ok() || !is_retryable(used_up.error().code) ? refused.why : used_up.error();
}

Result<Submitted> RunSubmissions::load_weights(const UserId& user, const LoadWeights& request,
                                               const telemetry::SpanContext& trace) {
  if (request.create) return create_from_checkpoint(user, request, trace);
  return submit(user, request.run, OperationType::kLoadWeights, request.seq_id, request, std::nullopt, trace);
}

}  // namespace tuft::control
