// What a worker remembers of the calls for its training adapters, so that its server can go on with the adapters after
// the connection broke, and so can another process of the server.
//
// A call is known by its method and the request_id of its CallIds. As long as it is remembered it runs once: when it
// comes again, it gets the answer of the first. A call that `resumes` never runs, it only asks for that answer. If
// there is none, it gets the error "not_begun", and the call does not run any more, should it come late.
//
// Of each adapter the newest kCallsOfAdapter calls are kept, and of all adapters answers of `bytes_max` bytes; beyond
// that the oldest answers of the tenant with the most bytes are forgotten. `before` of a held adapter then names the
// newest one that was forgotten, so that a server sees whether it has all answers that come after.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "base/mutex.h"
#include "base/result.h"
#include "tuft/worker/v1/model_actor.pb.h"
#include "worker/operation.h"
#include "worker/without_exceptions.h"

namespace tuft::worker {

// Thread-safe. Replies are called without the lock. Must outlive the calls.
class KeptCalls {
 public:
  static constexpr size_t kCallsOfAdapter = 32;

  explicit KeptCalls(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes in a call for an adapter. Returns the reply with which it is to run; nothing if `reply` gets the answer of
  // the same call, at once or later, or the error "not_begun". Without a request_id it always runs, and the calls
  // before it are forgotten, because the adapter then has another history.
  template <typename Method>
  std::optional<Reply<typename Method::Response>> take_in(const std::string& adapter, const v1::CallIds& ids,
                                                          Reply<typename Method::Response> reply);
  // Takes in a call that adds or removes a sampler. Returns the reply with which it is to run.
  template <typename Method>
  Reply<typename Method::Response> take_in_sampler(const std::string& sampler, Reply<typename Method::Response> reply);

  // Returns the adapters and samplers that are there, with the calls that are remembered.
  v1::ListHoldingsResponse list() const;
  size_t adapters() const;

 private:
  using Answer = Result<std::shared_ptr<const google::protobuf::MessageLite>>;
  using Deliver = std::function<void(const Answer&)>;

  struct KeptCall {
    std::string method;
    v1::CallIds ids;
    std::string adapter;
    std::optional<Answer> answer;  // nothing while it runs
    int64_t bytes = 0;             // of the answer
    std::vector<Deliver> waiting;
    std::optional<std::list<KeptCall*>::iterator> in_tenant;  // while its answer is kept
  };
  using KeptCallPtr = std::shared_ptr<KeptCall>;
  struct Adapter {
    bool exists = false;
    std::string before;
    std::deque<KeptCallPtr> calls;
  };
  struct Tenant {
    int64_t bytes = 0;
    std::list<KeptCall*> answered;  // the oldest first
  };
  static KeptCallPtr find(const Adapter& adapter, std::string_view method, const v1::CallIds& ids);
  // Returns the call if it is new. Otherwise `deliver` was called, or will be.
  KeptCallPtr begin(std::string_view method, const std::string& adapter, const v1::CallIds& ids, Deliver deliver);
  // Needs no memory to deliver the answer.
  void end(const KeptCallPtr& call, Answer answer);
  void keep_locked(KeptCall& call) TUFT_REQUIRES(mutex_);
  void forget_all(const std::string& adapter);
  void note_adapter(std::string_view method, const std::string& adapter);
  void note_adapter_locked(std::string_view method, const std::string& adapter) TUFT_REQUIRES(mutex_);
  void forget_adapter_locked(const std::string& adapter) TUFT_REQUIRES(mutex_);
  void note_sampler(std::string_view method, const std::string& sampler);
  void forget_through_locked(Adapter& adapter, const KeptCall& last) TUFT_REQUIRES(mutex_);
  void forget_answer_locked(KeptCall& call) TUFT_REQUIRES(mutex_);
  void forget_calls_locked(Adapter& adapter) TUFT_REQUIRES(mutex_);
  void forget_over_limits_locked(Adapter& adapter) TUFT_REQUIRES(mutex_);

  const int64_t bytes_max_;
  mutable Mutex mutex_;
  int64_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Adapter> adapters_ TUFT_GUARDED_BY(mutex_);
  std::map<std::string, Tenant> tenants_ TUFT_GUARDED_BY(mutex_);  // those with answers
  std::set<std::string> samplers_ TUFT_GUARDED_BY(mutex_);
};

template <typename Method>
std::optional<Reply<typename Method::Response>> KeptCalls::take_in(const std::string& adapter, const v1::CallIds& ids,
                                                                   Reply<typename Method::Response> reply) {
  using Response = typename Method::Response;
  if (ids.request_id().empty()) {
    forget_all(adapter);
    return [this, adapter, reply = std::move(reply)](Result<Response> result) {
      if (result.ok()) note_adapter(Method::kMethod.name, adapter);
      reply(std::move(result));
    };
  }
  const KeptCallPtr call = begin(Method::kMethod.name, adapter, ids, [reply = std::move(reply)](const Answer& answer) {
    reply(without_exceptions([&]() -> Result<Response> {
      if (!answer.ok()) return Error(answer.error());
      return Response(static_cast<const Response&>(**answer));
    }));
  });
  if (call == nullptr) return std::nullopt;
  return [this, call, response = std::make_shared<Response>()](Result<Response> result) {
    if (!result.ok()) return end(call, std::move(result).error());
    *response = std::move(result).value();
    end(call, Answer(response));
  };
}

template <typename Method>
Reply<typename Method::Response> KeptCalls::take_in_sampler(const std::string& sampler,
                                                            Reply<typename Method::Response> reply) {
  return [this, sampler, reply = std::move(reply)](Result<typename Method::Response> result) {
    if (result.ok()) note_sampler(Method::kMethod.name, sampler);
    reply(std::move(result));
  };
}

}  // namespace tuft::worker
