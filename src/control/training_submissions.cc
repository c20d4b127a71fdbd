#include <limits>
#include <utility>

#include "control/operation_keys.h"
#include "control/training_controller.h"

namespace tuft::control {
namespace {

const telemetry::Tracer& tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.training_controller");
  return instance;
}

std::string operation_key(const RunId& run, int64_t seq_id) {
  return run.str() + '#' + std::to_string(seq_id);
}

void start_controller_span(RunOperation& operation) {
  const telemetry::SpanOptions options{.parent = operation.future->context};
  switch (operation.type) {
    case OperationType::kCreateModel:
      operation.span = tracer().start_span("training_controller.create_model", options);
      break;
    case OperationType::kForward:
      operation.span = tracer().start_span("training_controller.run_forward", options);
      break;
    case OperationType::kForwardBackward:
      operation.span = tracer().start_span("training_controller.run_forward_backward", options);
      break;
    case OperationType::kOptimStep:
      operation.span = tracer().start_span("training_controller.run_optim_step", options);
      break;
    case OperationType::kSaveWeights:
    case OperationType::kSaveWeightsForSampler:
      operation.span = tracer().start_span("training_controller.save_checkpoint", options);
      break;
    case OperationType::kLoadWeights:
      operation.span = tracer().start_span("training_controller.load_checkpoint", options);
      break;
    case OperationType::kUnloadModel:
    case OperationType::kSample:
      return;
  }
  operation.span.set_attributes(KeyAttributes(operation.future->keys));
}

OperationKeys keys_of(const Run& run, OperationType type, std::optional<int64_t> seq_id) {
  OperationKeys keys = keys_of(run);
  keys.operation = type;
  keys.seq_id = seq_id;
  return keys;
}

// A name that a client made up is nothing to record.
std::string_view known_loss(std::string_view name) {
  for (const std::string_view known : {"cross_entropy", "importance_sampling", "ppo", "cispo", "dro"}) {
    if (name == known) return known;
  }
  return "unknown";
}

void describe_payload(RunOperation& operation) {
  if (const auto* request = std::get_if<worker::v1::ForwardBackwardRequest>(&operation.payload)) {
    operation.span.set_attributes({{"tuft.data_count", request->request().data_size()},
                                   {"tuft.loss_fn", known_loss(request->request().loss_fn())}});
  } else if (const auto* step = std::get_if<OptimStep>(&operation.payload)) {
    operation.span.set_attribute("tuft.learning_rate", step->learning_rate);
  } else if (operation.type == OperationType::kSaveWeights) {
    operation.span.set_attribute("tuft.checkpoint_type", checkpoint_type_name(CheckpointKind::kTraining));
  } else if (operation.type == OperationType::kSaveWeightsForSampler) {
    operation.span.set_attribute("tuft.checkpoint_type", checkpoint_type_name(CheckpointKind::kSampler));
  }
}

// Of a datum: its id, and what the loss wants to know of it.
constexpr size_t kBytesOfToken = 12;

// What it takes in memory beside the operation that holds it.
int64_t bytes_of(const decltype(RunOperation::payload)& payload) {
  size_t bytes = 0;
  if (const auto* pass = std::get_if<worker::v1::ForwardBackwardRequest>(&payload)) {
    bytes = pass->SpaceUsedLong();
  } else if (const auto* save = std::get_if<SaveWeights>(&payload)) {
    bytes = save->name.size();
  } else if (const auto* sampler_save = std::get_if<SaveWeightsForSampler>(&payload)) {
    bytes = sampler_save->name.size();
  } else if (const auto* load = std::get_if<LoadWeights>(&payload)) {
    bytes = load->path.size();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

RunId run_id_of(const SessionId& session, int64_t model_seq_id) {
  return RunId(session.str() + ":train:" + std::to_string(model_seq_id));
}

std::string creation_key(const RunId& run) {
  return run.str() + "#create";
}

Submitted submitted(const FuturePtr& future) {
  return {future->request, future->keys.run, OperationKeysPtr(future, &future->keys)};
}

Status check_model(const CreateModel& request, const config::ModelConfig& model) {
  if (!model.training) {
    return invalid_argument("base model " + model.model_name + " is configured without the capability training",
                            "training_disabled");
  }
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

Result<Submitted> TrainingController::create_model(const UserId& user, const CreateModel& request,
                                                   const telemetry::SpanContext& trace) {
  TUFT_TRY(parts_.sessions.touch(user, request.session));
  if (request.model_seq_id < 0) return invalid_argument("model_seq_id must not be negative", "invalid_model_seq_id");
  const std::string key = creation_key(run_id_of(request.session, request.model_seq_id));
  if (const FuturePtr known = parts_.futures.find_by_key(user, key)) return submitted(known);
  TUFT_ASSIGN(const auto backend, parts_.backends.find(request.base_model));
  TUFT_TRY(check_model(request, backend->config()));
  auto operation = std::make_shared<RunOperation>();
  operation->type = OperationType::kCreateModel;
  const double lora_alpha = static_cast<double>(request.lora.rank) * backend->config().lora_alpha_ratio;
  return admit_creation(user, request, backend, lora_alpha, operation, trace);
}

// `operation` makes the run.
Result<Submitted> TrainingController::admit_creation(const UserId& user, const CreateModel& request,
                                                     const std::shared_ptr<ModelBackend>& backend, double lora_alpha,
                                                     const OperationPtr& operation,
                                                     const telemetry::SpanContext& trace) {
  bool added = false;
  TUFT_ASSIGN(const RunPtr run, add_run(user, request, backend, lora_alpha, &added));
  // The session may have begun to end before it saw the run.
  if (const Status alive = parts_.sessions.touch(user, request.session); !alive.ok()) {
    if (added) remove_run(run, alive.error());
    return alive.error();
  }
  auto admission = parts_.futures.admit(user, keys_of(*run, operation->type, std::nullopt), creation_key(run->id),
                                        trace, {.payload_bytes = bytes_of(operation->payload)});
  if (!admission.ok()) {
    if (added) remove_run(run, admission.error());
    return std::move(admission).error();
  }
  const Submitted answer = submitted(admission->future);
  if (!admission->is_new) return answer;
  bool exists = false;
  {
    MutexLock lock(run->mutex);
    exists = run->created;
  }
  if (exists) {
    FutureValue known = CreateModelResult{run->id};
    if (operation->checkpoint != nullptr) known = LoadWeightsResult{operation->checkpoint->path.str(), run->id};
    parts_.futures.complete(admission->future, std::move(known));
    return answer;
  }
  operation->future = std::move(admission->future);
  operation->memory = std::move(admission->memory);
  operation->creates_run = true;
  start_controller_span(*operation);
  enqueue(run, operation);
  return answer;
}

Result<Submitted> TrainingController::unload_model(const UserId& user, const RunId& run_id,
                                                   const telemetry::SpanContext& trace) {
  const std::string key = run_id.str() + "#unload";
  if (const FuturePtr known = parts_.futures.find_by_key(user, key)) return submitted(known);
  TUFT_ASSIGN(const RunPtr run, find(user, run_id));
  TUFT_ASSIGN(auto admission,
              parts_.futures.admit(user, keys_of(*run, OperationType::kUnloadModel, std::nullopt), key, trace, {}));
  const Submitted answer = submitted(admission.future);
  if (!admission.is_new) return answer;
  auto operation = std::make_shared<RunOperation>();
  operation->future = std::move(admission.future);
  operation->memory = std::move(admission.memory);
  operation->type = OperationType::kUnloadModel;
  enqueue(run, operation);
  return answer;
}

Result<Submitted> TrainingController::submit(const UserId& user, const RunId& run_id, OperationType type,
                                             std::optional<int64_t> seq_id, Payload payload,
                                             std::optional<Error> refusal, const telemetry::SpanContext& trace) {
  TUFT_ASSIGN(const RunPtr run, find(user, run_id));
  parts_.sessions.note_alive(run->session);
  if (seq_id && *seq_id == 0) seq_id.reset();
  if (seq_id && *seq_id < 0) return invalid_argument("seq_id must be positive; the first is 1", "invalid_seq_id");
  if (seq_id && *seq_id == std::numeric_limits<int64_t>::max()) {
    return invalid_argument("seq_id is so large that none could follow it; the first is 1", "invalid_seq_id");
  }
  std::string key = seq_id ? operation_key(run_id, *seq_id) : std::string();
  bool has_room = false;
  FutureStore::Weight weight{.payload_bytes = bytes_of(payload)};
  {
    MutexLock lock(run->mutex);
    has_room = run->log.has_room(seq_id, static_cast<size_t>(parts_.config.limits.reorder_window));
    weight.waits_for_gap = seq_id && *seq_id > run->log.next_seq_id();
  }
  if (!has_room && parts_.futures.find_by_key(user, key) == nullptr) {
    return Error{ErrorCode::kResourceExhausted,
                 std::to_string(parts_.config.limits.reorder_window) +
                     " operations of this run wait for a lower seq_id that has not arrived; send that one first, or "
                     "raise limits.reorder_window in the server's configuration",
                 "reorder_window"};
  }
  TUFT_ASSIGN(auto admission, parts_.futures.admit(user, keys_of(*run, type, seq_id), std::move(key), trace, weight));
  const Submitted answer = submitted(admission.future);
  if (!admission.is_new) return answer;
  auto operation = std::make_shared<RunOperation>();
  operation->future = std::move(admission.future);
  operation->memory = std::move(admission.memory);
  operation->type = type;
  operation->seq_id = seq_id;
  operation->payload = std::move(payload);
  operation->refusal = std::move(refusal);
  if (const auto* pass = std::get_if<worker::v1::ForwardBackwardRequest>(&operation->payload)) {
    operation->cost += static_cast<int64_t>(pass->ByteSizeLong() / kBytesOfToken);
  }
  start_controller_span(*operation);
  describe_payload(*operation);
  parts_.futures.on_cancel(*operation->future, [weak_run = std::weak_ptr(run), weak = std::weak_ptr(operation)] {
    const RunPtr log = weak_run.lock();
    const OperationPtr waiting = weak.lock();
    if (log != nullptr && waiting != nullptr) let_go(*log, *waiting);
  });
  enqueue(run, operation);
  return answer;
}

Result<Submitted> TrainingController::forward_backward(const UserId& user,
                                                       tinker_public::ForwardBackwardRequest request,
                                                       const telemetry::SpanContext& trace) {
  const OperationType type = request.forward_only() ? OperationType::kForward : OperationType::kForwardBackward;
  const RunId run_id(request.model_id());
  const int64_t seq_id = request.seq_id();
  worker::v1::ForwardBackwardRequest work;
  work.set_adapter_id(run_id.str());
  *work.mutable_request() = std::move(request);
  return submit(user, run_id, type, seq_id, std::move(work), std::nullopt, trace);
}

Result<Submitted> TrainingController::optim_step(const UserId& user, const OptimStep& request,
                                                 const telemetry::SpanContext& trace) {
  return submit(user, request.run, OperationType::kOptimStep, request.seq_id, request, std::nullopt, trace);
}

Result<Submitted> TrainingController::save_weights(const UserId& user, const SaveWeights& request,
                                                   const telemetry::SpanContext& trace) {
  std::optional<Error> refusal;
  if (!request.name.empty()) {
    if (Status checked = check_checkpoint_name(request.name); !checked.ok()) refusal = checked.error();
  }
  return submit(user, request.run, OperationType::kSaveWeights, request.seq_id, request, std::move(refusal), trace);
}

Result<Submitted> TrainingController::save_weights_for_sampler(const UserId& user, const SaveWeightsForSampler& request,
                                                               const telemetry::SpanContext& trace) {
  std::optional<Error> refusal;
  if (!request.name.empty()) {
    if (Status checked = check_checkpoint_name(request.name); !checked.ok()) refusal = checked.error();
  } else if (request.sampling_session_seq_id && *request.sampling_session_seq_id < 0) {
    refusal = invalid_argument("sampling_session_seq_id must not be negative", "invalid_sampling_session_seq_id");
  }
  return submit(user, request.run, OperationType::kSaveWeightsForSampler, request.seq_id, request, std::move(refusal),
                trace);
}

}  // namespace tuft::control
