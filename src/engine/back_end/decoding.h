// Decoding: the DecodeEngine of a back end (assembled_engine.h says what a BackEnd is).
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/back_end/adapters.h"
#include "engine/back_end/checks.h"
#include "engine/back_end/open_sequence.h"
#include "engine/decode_engine.h"

namespace tuft::engine {

template <typename BackEnd>
class Decoding final : public DecodeEngine {
 public:
  using Sequence = OpenSequence<BackEnd>;

  Decoding(BackEnd& back_end, const Adapters<BackEnd>& adapters) : back_end_(back_end), adapters_(adapters) {}

  Result<SequenceId> open(const std::optional<AdapterId>& adapter, uint64_t scope) override {
    typename Adapters<BackEnd>::Pointer found;
    if (adapter) {
      TUFT_ASSIGN(found, adapters_.find(*adapter));
    }
    const uint64_t version = found == nullptr ? 0 : found->version();
    return add({std::move(found), {back_end_.cache(), {version, scope}}});
  }
  Result<SequenceId> fork(SequenceId source) override {
    return back_end_.guarded("another sequence", [&]() -> Result<SequenceId> {
      TUFT_ASSIGN(const Sequence* const from, find(source));
      TUFT_ASSIGN(auto kv, from->kv.fork());
      return add({from->adapter, std::move(kv)});
    });
  }
  void close(SequenceId sequence) override { sequences_.erase(sequence); }
  int adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) override {
    const auto found = find(sequence);
    return found.ok() ? (*found)->kv.adopt(tokens) : 0;
  }
  Status step(std::span<const Feed> feeds, const LogitsSink& sink) override {
    return back_end_.guarded("a step", [&]() -> Status {
      TUFT_ASSIGN(const auto fed, find_all(feeds));
      for (size_t i = 0; i < feeds.size(); ++i) {
        if (!fed[i]->kv.extend(static_cast<int>(feeds[i].tokens.size()))) return kv_cache_full(kv_usage());
      }
      if (!feeds.empty()) back_end_.step(feeds, fed, sink);
      return {};
    });
  }

  void run_tasks(int tasks, const Task& task) override { back_end_.run_tasks(tasks, task); }
  int threads() const override { return back_end_.threads(); }

  KvUsage kv_usage() const override { return kv_usage_of(back_end_.cache().pool(), back_end_.cache().block_bytes()); }
  std::vector<KvBlockTime> take_kv_block_times() override { return back_end_.cache().pool().take_times(); }

 private:
  SequenceId add(Sequence sequence) {
    while (next_ == 0 || sequences_.contains(next_)) ++next_;
    const SequenceId id = next_++;
    sequences_.emplace(id, std::move(sequence));
    return id;
  }
  Result<Sequence*> find(SequenceId id) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end()) return &found->second;
    return not_found("sequence " + std::to_string(id) + " is not open", "sequence_not_open");
  }
  Result<std::vector<Sequence*>> find_all(std::span<const Feed> feeds) {
    std::vector<Sequence*> fed;
    std::set<SequenceId> seen;
    for (const Feed& feed : feeds) {
      TUFT_ASSIGN(Sequence * sequence, find(feed.sequence));
      if (!seen.insert(feed.sequence).second) {
        return invalid_argument("a sequence is fed twice in one step", "feed_twice");
      }
      TUFT_TRY(check_feed(back_end_.model(), feed));
      fed.push_back(sequence);
    }
    return fed;
  }

  BackEnd& back_end_;
  const Adapters<BackEnd>& adapters_;
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_ = 1;
};

}  // namespace tuft::engine
