#include "control/training/custom_losses.h"

#include <limits>
#include <utility>

#include "control/accounts/quota.h"
#include "control/types/operation_keys.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr int64_t kLossBytes = 1024;  // of a loss, without its graph
constexpr const char* kLossId = "loss_id";

std::string loss_id_of(const CreateCustomLoss& request) {
  return request.session.str() + ":loss:" + std::to_string(request.custom_loss_seq_id);
}

Submitted submitted_loss(const FuturePtr& future) {
  return {future->request, std::nullopt, OperationKeysPtr(future, &future->keys), future->context};
}

OperationKeys keys_of(const UserId& user, const SessionId& session) {
  OperationKeys keys;
  keys.operation = OperationType::kCreateCustomLoss;
  keys.user = user;
  keys.session = session;
  return keys;
}

config::Limits unlimited() {
  config::Limits limits;
  limits.custom_losses_per_user_max = std::numeric_limits<int>::max();
  limits.custom_loss_bytes_per_user_max = std::numeric_limits<int64_t>::max();
  return limits;
}

Error unknown_loss() {
  return not_found(
      "loss_fn_config: this session has no custom loss with this loss_id. A custom loss belongs to the session that "
      "created it, and is lost when the session ends or a server without persistence restarts: create it again with "
      "create_custom_loss of a new ServiceClient",
      "custom_loss_not_found");
}

}  // namespace

Result<Submitted> CustomLosses::create(const UserId& user, const CreateCustomLoss& request,
                                       const telemetry::SpanContext& trace) {
  TUFT_TRY(sessions_.touch(user, request.session));
  const std::string id = loss_id_of(request);
  const std::string key = id + "#create";
  if (const FuturePtr known = futures_.find_by_key(user, key)) return submitted_loss(known);
  const auto program = loss_graph::Program::parse(request.graph, request.inputs);
  std::vector<store::Change> also;
  if (program.ok()) {
    TUFT_ASSIGN(const auto loss, add(user, request, id));
    also.push_back(persistence_.put({id, user, request.session, loss->inputs, loss->graph}));
  }
  TUFT_ASSIGN(const auto admission, futures_.admit(user, keys_of(user, request.session), key, trace, {}));
  if (admission.is_new) {
    Result<FutureValue> result = FutureValue(CreateCustomLossResult{id});
    if (!program.ok()) result = program.error();
    futures_.complete(admission.future, std::move(result), std::move(also));
  }
  return submitted_loss(admission.future);
}

// Returns the loss that has the id already, if there is one.
Result<std::shared_ptr<const CustomLosses::Loss>> CustomLosses::add(const UserId& user, const CreateCustomLoss& request,
                                                                    const std::string& id) {
  if (auto known = find(user, request.session, id)) return known;
  auto loss =
      std::make_shared<Loss>(Loss{request.inputs, request.graph, bytes_->open(user.str()), counts_->open(user.str())});
  TUFT_TRY(take_memory(*loss, limits_));
  insert(user, request.session, id, loss);
  // The session may have begun to end before it could see the loss.
  if (!sessions_.exists(request.session)) close_session(user, request.session);
  telemetry::log_info("custom_loss.created", "a custom loss was accepted",
                      {{"tuft.session_id", request.session.str()},
                       {"tuft.custom_loss_bytes", request.graph.size()},
                       {"tuft.custom_loss_inputs", request.inputs.size()}});
  return std::shared_ptr<const Loss>(std::move(loss));
}

Status CustomLosses::take_memory(Loss& loss, const config::Limits& limits) {
  if (loss.count.grow_to(1, {.each = limits.custom_losses_per_user_max}) != ByteAccount::Answer::kTaken) {
    return over_quota(Quota::kCustomLosses,
                      "you have " + std::to_string(limits.custom_losses_per_user_max) + " custom losses",
                      "end the sessions of some");
  }
  const int64_t bytes = kLossBytes + static_cast<int64_t>(loss.graph.size());
  if (loss.memory.grow_to(bytes, {.each = limits.custom_loss_bytes_per_user_max}) != ByteAccount::Answer::kTaken) {
    return over_quota(
        Quota::kCustomLossBytes,
        "your custom losses would take more than " + std::to_string(limits.custom_loss_bytes_per_user_max) + " bytes",
        "end the sessions of some");
  }
  return {};
}

void CustomLosses::insert(const UserId& user, const SessionId& session, const std::string& id,
                          std::shared_ptr<const Loss> loss) {
  MutexLock lock(mutex_);
  losses_[{user, session}].emplace(id, std::move(loss));
}

void CustomLosses::restore(CustomLossRecord record) {
  auto loss = std::make_shared<Loss>(Loss{std::move(record.inputs), std::move(record.graph),
                                          bytes_->open(record.user.str()), counts_->open(record.user.str())});
  // The limits may have been lowered since; what was accepted stays.
  const bool is_usable = sessions_.belongs_to(record.user, record.session) && take_memory(*loss, unlimited()).ok();
  if (is_usable) return insert(record.user, record.session, record.id, std::move(loss));
  persistence_.write({}, {persistence_.erase_custom_loss(record.id)}, {});
}

std::shared_ptr<const CustomLosses::Loss> CustomLosses::find(const UserId& user, const SessionId& session,
                                                             const std::string& id) const {
  MutexLock lock(mutex_);
  const auto of_session = losses_.find({user, session});
  if (of_session == losses_.end()) return nullptr;
  const auto found = of_session->second.find(id);
  return found == of_session->second.end() ? nullptr : found->second;
}

Status CustomLosses::put_into(const UserId& user, const SessionId& session,
                              worker::v1::ForwardBackwardRequest& pass) const {
  auto& config = *pass.mutable_request()->mutable_loss_fn_config_v2();
  const auto given = config.find(kLossId);
  if (given == config.end() || !given->second.has_text()) {
    return invalid_argument("loss_fn_config: loss_fn custom needs the text loss_id, which create_custom_loss returns",
                            "bad_loss_config");
  }
  const auto loss = find(user, session, given->second.text());
  if (loss == nullptr) return unknown_loss();
  config.erase(given);
  worker::v1::CustomLoss& message = *pass.mutable_custom_loss();
  for (const loss_graph::Input& input : loss->inputs) {
    worker::v1::CustomLossInput& out = *message.add_inputs();
    out.set_name(input.name);
    out.set_rank(input.rank);
  }
  message.set_graph(loss->graph);
  return {};
}

void CustomLosses::close_session(const UserId& user, const SessionId& session) {
  LossesOfSession closed;
  {
    MutexLock lock(mutex_);
    const auto found = losses_.find({user, session});
    if (found == losses_.end()) return;
    closed.swap(found->second);
    losses_.erase(found);
  }
  std::vector<store::Change> erased;
  for (const auto& [id, loss] : closed) erased.push_back(persistence_.erase_custom_loss(id));
  persistence_.write({}, std::move(erased), telemetry::current_context());
}

}  // namespace tuft::control
