// SampleRequests: the samples that the engine thread has accepted and not answered. Some run in the sampler; others are
// held until their adapter is back from its page, or while it yields to another one (adapter_pager.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "engine/sample/sampler.h"
#include "worker/adapter_pager.h"

namespace tuft::worker {

struct NewSample {
  uint64_t ticket = 0;
  engine::SampleRequest request;
  engine::Sampler::Done done;
};

// Confined to the engine thread. `done` of a request runs exactly once, and must not throw. A sample for which there is
// no memory is answered so, as any other refusal.
class SampleRequests {
 public:
  using Ticket = uint64_t;

  // `answered` is called with a number of samples just before these are answered. The references outlive this.
  SampleRequests(engine::Sampler& sampler, AdapterPager& pager, std::function<void(size_t)> answered)
      : sampler_(sampler), pager_(pager), answered_(std::move(answered)) {}

  void add(NewSample sample);
  // Unknown and finished ones are ignored.
  void cancel(Ticket ticket);
  // Answers those on an adapter, or all of them, with `error`.
  void fail(const engine::AdapterId& adapter, const Error& error);
  void fail_all(const Error& error);
  // An adapter is back from its page, or is lost: starts or fails the samples that are held for it.
  void adapter_arrived(const AdapterPager::Arrival& arrival);
  // Goes on with the samples whose adapter has yielded: starts them, or asks for the adapter if it was paged out. To be
  // called after AdapterPager::go_on(). Throws std::bad_alloc if there is no memory to ask; a later call goes on.
  void resume();

  // Returns whether a sample of the adapter runs in the sampler.
  bool runs_on(const engine::AdapterId& adapter) const { return count_by_adapter_.contains(adapter); }
  // Returns the number of samples that wait for their adapter.
  size_t held() const;

 private:
  struct Active {
    engine::Sampler::RequestNumber number = 0;
    std::optional<engine::AdapterId> adapter;
    std::optional<Error> instead;  // the answer in place of kCancelled, where the caller did not cancel
  };
  using Held = std::unordered_map<engine::AdapterId, std::deque<NewSample>>;

  Result<bool> hold(NewSample& sample);
  void start(NewSample sample);
  void start(Held::node_type held);
  Result<engine::Sampler::RequestNumber> submit(NewSample& sample);
  void refuse(const NewSample& sample, Error error);
  std::map<Ticket, Active>::node_type take(Ticket ticket);
  void stop(const engine::AdapterId* adapter, const Error& error);
  void refuse(Held::node_type held, const Error& error);

  engine::Sampler& sampler_;
  AdapterPager& pager_;
  const std::function<void(size_t)> answered_;
  std::map<Ticket, Active> active_;
  std::unordered_map<engine::AdapterId, int> count_by_adapter_;  // of active_
  Held held_;
  std::unordered_set<engine::AdapterId> yielded_;  // whose samples were held while they were in the engine
};

}  // namespace tuft::worker
