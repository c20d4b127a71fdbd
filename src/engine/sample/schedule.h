// Which sequences run in the next step, and who holds blocks of the KV cache. Requests are served by age: where blocks
// are short the youngest sequences give theirs back, wait, and are fed again from their tokens when there is room.
// Internal to the sampler; confined to the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/sample/request_state.h"
#include "engine/sample/step_metrics.h"

namespace tuft::engine {

class Schedule {
 public:
  // All outlive it. Of the options: batch_tokens and sequences_max.
  Schedule(Engine& engine, const SamplerOptions& options, const StepMetrics& metrics)
      : engine_(engine), options_(options), metrics_(metrics) {}
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  using Requests = std::vector<std::unique_ptr<Request>>;
  const Requests& active() const { return active_; }  // oldest first
  int places_taken() const;                           // by samples that run and prompts that are not done
  bool has_place() const { return places_taken() < options_.sequences_max; }

  // Tokens that the cache has room for, one sequence alone; INT_MAX without a limit.
  int tokens_max() const;

  // Chooses the feeds of the next step out of what is active.
  void plan(Nanos now);
  // After plan(): makes `next` active and plans it too, unless there is no room. True when it was taken. It is not
  // taken, and has failed, where it never can be.
  bool admit(std::unique_ptr<Request>& next);
  // Of the plan. They borrow from the requests.
  std::span<const Feed> feeds() const { return feeds_; }
  std::span<const Slot> slots() const { return slots_; }
  const StepMetrics::Step& step() const { return step_; }
  // The step went well: what was planned is in the cache.
  void fed();

  // Gives a sample that goes on a sequence: a fork of its prompt's, that itself, or none until there is room. False
  // where it has to be tried again later.
  bool start(std::unique_ptr<Running>& running);
  // Drops samples that are finished.
  void remove_finished();
  // No sample starts from the prompt any more.
  void close_stem(Request& request);
  // The request's blocks are free; it is not active any more.
  std::unique_ptr<Request> remove(const Request& request);

 private:
  int64_t free_blocks() const;
  int64_t blocks_for(size_t length, size_t more) const;
  bool make_room(const Slot& who, int64_t blocks);
  bool preempt_younger(const Slot& who);
  void preempt(Running& running);
  void release_stem(Request& request);

  bool open(const Slot& who);
  void plan_running(Running& running);
  void plan_prompt(Request& request);
  void take_over(Request& request);
  bool twin_is_fed(const Request& request) const;
  size_t fit(const Slot& who, size_t length, size_t tokens);
  void prompt_fed(Request& request, size_t tokens);
  void add(const Slot& slot, const Feed& feed, size_t length);

  Engine& engine_;
  const SamplerOptions& options_;
  const StepMetrics& metrics_;

  Requests active_;
  std::unordered_map<AdapterId, AdapterUse> adapters_;
  // Of the plan.
  std::vector<Feed> feeds_;
  std::vector<Slot> slots_;
  StepMetrics::Step step_;
  size_t tokens_left_ = 0;  // of the budget, beside the running sequences
  int64_t promised_ = 0;    // blocks that the feeds so far will take
  bool gave_way_ = false;   // somebody gave blocks back
  bool stalled_ = false;    // something waits for blocks: nothing younger starts, or starts again
  uint64_t step_number_ = 0;
  Nanos now_ = 0;
};

}  // namespace tuft::engine
