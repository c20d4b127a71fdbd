// Sampling sessions: a client's handles ("samplers") to sample from the base model or from one checkpoint as it was
// when the session was created. Those of inflight saves follow their run instead: they share one place that holds
// what they sample from, and each inflight save of the run puts its weights there.
//
// A sampling session belongs to a session of its user and ends with it. At limits.samplers_per_user_max a new one makes
// room for itself: by ending the user's longest unused session that is silent and has sampling sessions, else by
// dropping a sampling session that an unnamed save created. An unnamed save also drops the longest unused ones that
// unnamed saves of its run created above limits.unnamed_samplers_per_run_max: each holds a version of the weights.
// Those that follow the run share one and stay, as do those that samples run on. Why a sampling session is gone is
// remembered for its user.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/accounts/usage.h"
#include "control/persistence/persistence.h"
#include "control/sampling/frozen_adapters.h"
#include "control/sampling/sampler_tombstones.h"
#include "control/sessions/sessions.h"
#include "control/types/types.h"

namespace tuft::control {

// Thread-safe. The lock may be held while FrozenAdapters and Persistence take theirs; it is held over no other call.
class SamplerTable {
 public:
  SamplerTable(const config::Limits& limits, const Clock& clock, Sessions& sessions, Persistence& persistence,
               Usage& usage, std::shared_ptr<FrozenAdapters> adapters)
      : count_max_(static_cast<size_t>(limits.samplers_per_user_max)),
        unnamed_max_(static_cast<size_t>(limits.unnamed_samplers_per_run_max)),
        clock_(clock),
        sessions_(sessions),
        persistence_(persistence),
        usage_(usage),
        adapters_(std::move(adapters)) {}

  struct NewSampler {
    SessionId session;
    int64_t seq_id = 0;
    bool inflight = false;  // it follows the run of its checkpoint, as the others that follow it do
  };
  // Creates "<session>:sample:<seq_id>" on `checkpoint` (null: the base model), or returns it if it is on the same one
  // already. kInvalidArgument if it is on another one, kResourceExhausted at the limit, kNotFound if the session ends.
  Result<SamplerId> create(const UserId& user, const NewSampler& request, const ModelPtr& model,
                           const CheckpointPtr& checkpoint, const telemetry::SpanContext& trace);
  // At the start: a sampling session of a former server process, on the same checkpoint (null: the base model). It
  // counts as used now, so restore the oldest first.
  // Requires: the records of those that follow one run name the same checkpoint (follow_newest() of restore_plan.h).
  void restore(const SamplerRecord& record, const ModelPtr& model, const CheckpointPtr& checkpoint);
  // At the start: a sampling session that cannot come back. `why`: a sentence for its user.
  void note_gone(const SamplerId& sampler, const UserId& user, std::string why) {
    gone_.note(sampler, user, std::move(why));
  }

  struct Used {
    FrozenAdapterPtr adapter;
    SessionId session;
    std::shared_ptr<SampleHome> home;
  };
  // Returns what the user samples from, and counts it as used now. kNotFound for an unknown sampling session and
  // somebody else's (the same), and for one that is gone (with the reason).
  Result<Used> use(const UserId& user, const SamplerId& sampler);
  // The same errors.
  Result<SamplerInfo> info(const UserId& user, const SamplerId& sampler) const;
  Result<SessionId> session_of(const UserId& user, const SamplerId& sampler) const;
  // Returns those of a session, in no order.
  std::vector<SamplerId> of_session(const UserId& user, const SessionId& session) const;

  // A sampling session as lists show it.
  struct Summary {
    SamplerId id;
    SessionId session;
    std::string base_model;
    std::optional<std::string> model_path;  // tinker://...
    std::string created_at;                 // ISO 8601
    Nanos last_used = 0;                    // monotonic; its creation counts
    uint64_t uses = 0;                      // in this server's life
    std::optional<RunId> follows;           // the run whose newest weights it samples from
  };
  // In no order.
  std::vector<Summary> summaries_of(const UserId& user) const;
  int64_t count_of(const UserId& user) const;

  // Drops the user's longest unused sampling session that an unnamed save created and nothing runs on, together with
  // its checkpoint. `limit`: the key of the configuration that asks for room. Returns false if there is none.
  bool drop_unnamed(const UserId& user, std::string_view limit);
  // Drops those of a session that ends.
  void close_session(const UserId& user, const SessionId& session);

 private:
  // The weights of a sampling session. Sessions that follow one run share them.
  struct Weights {
    FrozenAdapterPtr adapter;
    CheckpointHoldPtr hold;
  };
  using WeightsPtr = std::shared_ptr<Weights>;
  struct Sampler {
    SamplerRecord record;
    WeightsPtr weights;
    Nanos last_used = 0;
    uint64_t turn = 0;  // at its last use, as a number of all uses
    uint64_t uses = 0;
    std::shared_ptr<SampleHome> home = std::make_shared<SampleHome>();
  };
  // The sampling sessions that follow one run (follow_key() of records.h). The stored record of `newest` names the
  // checkpoint of all of them.
  struct Followers {
    WeightsPtr weights;
    SamplerId newest;
    size_t count = 0;
  };
  struct Entry {  // a copy for use without the lock
    SamplerId id;
    SessionId session;
    FrozenAdapterPtr adapter;
    uint64_t turn = 0;
    bool names_for_others = false;  // its record names the checkpoint of others, too
  };
  struct Inserted {
    FrozenAdapterPtr adapter;
    FrozenAdapterPtr older;  // what those that follow the same run sampled from until now; null: nothing
  };
  enum class Insertion : uint8_t { kInserted, kKnown, kFull };

  Result<Insertion> insert(const SamplerRecord& record, const ModelPtr& model, const CheckpointPtr& checkpoint,
                           const telemetry::SpanContext& trace, Inserted& inserted);
  Inserted add_locked(const SamplerRecord& record, const ModelPtr& model, const CheckpointPtr& checkpoint)
      TUFT_REQUIRES(mutex_);
  WeightsPtr follow_locked(const SamplerRecord& record, const ModelPtr& model, const CheckpointPtr& checkpoint,
                           FrozenAdapterPtr& older) TUFT_REQUIRES(mutex_);
  void forget_unnamed_locked(const Sampler& sampler) TUFT_REQUIRES(mutex_);
  bool leave_locked(const Sampler& sampler) TUFT_REQUIRES(mutex_);
  Entry entry_locked(const SamplerId& id) const TUFT_REQUIRES(mutex_);
  std::vector<Entry> of_user(const UserId& user) const;
  std::vector<Entry> idle(std::vector<Entry> entries) const;  // the longest unused first
  bool make_room(const UserId& user);
  void trim_unnamed(const UserId& user, const RunId& run, const SamplerId& newest);
  void drop(const Entry& entry, const UserId& user, std::string_view limit);
  void remove(const SamplerId& sampler);
  Error unknown(const UserId& user, const SamplerId& sampler) const;

  const size_t count_max_;
  const size_t unnamed_max_;
  const Clock& clock_;
  Sessions& sessions_;
  Persistence& persistence_;
  Usage& usage_;
  const std::shared_ptr<FrozenAdapters> adapters_;
  SamplerTombstones gone_;
  mutable Mutex mutex_;
  uint64_t turns_ TUFT_GUARDED_BY(mutex_) = 0;
  std::unordered_map<SamplerId, Sampler> samplers_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, std::unordered_set<SamplerId>> by_user_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Followers> followers_ TUFT_GUARDED_BY(mutex_);  // by follow_key()
  // The sampling sessions of unnamed saves, without those that follow their run.
  std::unordered_map<RunId, std::unordered_set<SamplerId>> unnamed_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
