// The custom losses that clients uploaded (loss_graph/program.h), by session. A session that ends takes its losses with
// it. With persistence they survive a restart of the server, as their session does.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/byte_account.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/futures/future_store.h"
#include "control/persistence/persistence.h"
#include "control/sessions/sessions.h"
#include "control/types/types.h"
#include "loss_graph/program.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

// Thread-safe. Parses without a lock.
class CustomLosses {
 public:
  // All arguments outlive this.
  CustomLosses(const config::Limits& limits, Sessions& sessions, FutureStore& futures, Persistence& persistence)
      : limits_(limits), sessions_(sessions), futures_(futures), persistence_(persistence) {}

  // At the start, after the sessions: a loss of the former server process. One that can be used no more is erased.
  void restore(CustomLossRecord record);

  // Checks a graph, which takes about a millisecond, and keeps it as "<session>:loss:<n>". What is wrong with the graph
  // becomes the error of the future. The same session and number get the first future again. kNotFound for an unknown
  // session; kResourceExhausted over limits.custom_losses_per_user_max and limits.custom_loss_bytes_per_user_max.
  Result<Submitted> create(const UserId& user, const CreateCustomLoss& request, const telemetry::SpanContext& trace);

  // Replaces "loss_id" in the configuration of a pass of `session` by the loss itself. kInvalidArgument without a
  // loss_id; kNotFound for a loss that the session does not have.
  Status put_into(const UserId& user, const SessionId& session, worker::v1::ForwardBackwardRequest& pass) const;

  // How many losses the user has, and the bytes of their graphs.
  struct Use {
    int64_t count = 0, bytes = 0;
  };
  Use use_of(const UserId& user) const { return {counts_->held_by(user.str()), bytes_->held_by(user.str())}; }

  void close_session(const UserId& user, const SessionId& session);

 private:
  struct Loss {
    std::vector<loss_graph::Input> inputs;
    std::string graph;
    ByteAccount::Hold memory;
    ByteAccount::Hold count;
  };
  using Owner = std::pair<UserId, SessionId>;
  struct HashOwner {
    size_t operator()(const Owner& owner) const { return std::hash<std::string>()(owner.second.str()); }
  };
  using LossesOfSession = std::unordered_map<std::string, std::shared_ptr<const Loss>>;  // by id

  Result<std::shared_ptr<const Loss>> add(const UserId& user, const CreateCustomLoss& request, const std::string& id);
  static Status take_memory(Loss& loss, const config::Limits& limits);
  void insert(const UserId& user, const SessionId& session, const std::string& id, std::shared_ptr<const Loss> loss);
  std::shared_ptr<const Loss> find(const UserId& user, const SessionId& session, const std::string& id) const;

  const config::Limits limits_;
  Sessions& sessions_;
  FutureStore& futures_;
  Persistence& persistence_;
  const std::shared_ptr<ByteAccount> bytes_ = std::make_shared<ByteAccount>();   // by user
  const std::shared_ptr<ByteAccount> counts_ = std::make_shared<ByteAccount>();  // the same, one for each loss
  mutable Mutex mutex_;
  std::unordered_map<Owner, LossesOfSession, HashOwner> losses_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
