#include "control/sampling/sampling_controller.h"

#include "control/sampling/sample_request.h"
#include "control/sampling/sampling_telemetry.h"
#include "telemetry/context.h"

namespace tuft::control {

SamplingController::SamplingController(const Parts& parts)
    : parts_(parts),
      adapters_(
          std::make_shared<FrozenAdapters>(parts.owner, parts.clock, parts.checkpoints, parts.config.checkpoint_dir)),
      executor_(std::make_shared<SampleExecutor>(
          adapters_, SamplingTelemetry(parts.clock, parts.usage, parts.config.telemetry.tenant_label))),
      samplers_(parts.config.limits, parts.clock, parts.sessions, parts.persistence, parts.usage, adapters_),
      streams_(std::make_shared<SampleStreams>(parts.clock, parts.budget, samplers_, adapters_, executor_)),
      records_(std::make_shared<SampleRecords>(parts.config.limits, parts.clock, parts.sessions)) {
  adapters_->on_wake([weak = std::weak_ptr(executor_)](const SampleOperationPtr& operation, const Status& status) {
    const auto executor = weak.lock();
    if (executor == nullptr) return;
    if (status.ok()) {
      executor->execute(operation);
    } else {
      executor->fail(operation, status.error());
    }
  });
}

Result<SamplerId> SamplingController::create_session(const UserId& user, const CreateSamplingSession& request,
                                                     const telemetry::SpanContext& trace) {
  TUFT_TRY(parts_.sessions.touch(user, request.session));
  TUFT_TRY(parts_.persistence.available(user));
  if (request.seq_id < 0) {
    return invalid_argument("sampling_session_seq_id must not be negative", "invalid_sampling_session_seq_id");
  }
  if (!request.model_path.empty()) {
    TUFT_ASSIGN(const CheckpointPtr checkpoint, parts_.checkpoints.find_visible(user, request.model_path));
    TUFT_ASSIGN(const ModelPtr model, parts_.backends.find(checkpoint->base_model));
    return samplers_.create(user, {request.session, request.seq_id}, model, checkpoint, trace);
  }
  if (request.base_model.empty()) return invalid_argument("give base_model or model_path", "nothing_to_sample_from");
  TUFT_ASSIGN(const ModelPtr model, parts_.backends.find(request.base_model));
  return samplers_.create(user, {request.session, request.seq_id}, model, nullptr, trace);
}

Result<Submitted> SamplingController::sample(const UserId& user, const Sample& request,
                                             const telemetry::SpanContext& trace) {
  const Nanos now = parts_.clock.monotonic();
  TUFT_ASSIGN(SamplerTable::Used used, samplers_.use(user, request.sampler));
  parts_.sessions.note_alive(used.session);
  const Model& model = *used.adapter->model;
  OperationKeys keys;
  keys.operation = OperationType::kSample;
  keys.user = user;
  keys.session = used.session;
  keys.sampler = request.sampler;
  keys.base_model = model.name();
  keys.lora_rank = used.adapter->lora_rank();
  keys.seq_id = request.seq_id;
  TUFT_ASSIGN(worker::v1::SampleRequest work, make_sample_request(model.config(), user, request));
  std::string key = request.seq_id ? request.sampler.str() + '#' + std::to_string(*request.seq_id) : std::string();
  const int64_t bytes = static_cast<int64_t>(work.SpaceUsedLong()) + answer_bytes_max(work);
  TUFT_ASSIGN(auto admission,
              parts_.futures.admit(user, std::move(keys), std::move(key), trace, {.payload_bytes = bytes}));
  const FuturePtr& future = admission.future;
  Submitted answer{future->request, std::nullopt, OperationKeysPtr(future, &future->keys), future->context};
  if (!admission.is_new) return answer;
  model.facts().instruments().record_sample_request(work);
  const int64_t cost = sample_cost(model.config(), work);
  const auto operation = std::make_shared<SampleOperation>(
      user, std::move(used.adapter), answer.keys, std::make_shared<FutureSink>(parts_.futures, future, records_), now,
      cost, std::move(work), std::move(admission.memory));
  operation->home = std::move(used.home);
  operation->previous = request.previous;
  SamplingTelemetry::begin(*operation, future->context);
  parts_.futures.on_cancel(*future, [weak = std::weak_ptr(operation)] {
    if (const SampleOperationPtr waiting = weak.lock()) waiting->let_go(false);
  });
  executor_->execute(operation);
  return answer;
}

void SamplingController::shut_down() {
  executor_->shut_down();
  streams_->shut_down();
  adapters_->shut_down();
}

}  // namespace tuft::control
