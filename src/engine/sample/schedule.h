// Schedule: chooses which sequences run in the next step and which hold blocks of the KV cache. The oldest request
// comes first. If blocks are short, the youngest sequences release theirs, wait, and are fed again from their tokens
// when there is room. Internal to the sampler; confined to the engine thread.
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
  // All arguments must outlive it. Reads batch_tokens and sequences_max of the options.
  Schedule(DecodeEngine& engine, const SamplerOptions& options, const StepMetrics& metrics)
      : engine_(engine), options_(options), metrics_(metrics) {}
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  using Requests = std::vector<std::unique_ptr<Request>>;
  const Requests& active() const { return active_; }  // oldest first
  int places_taken() const;                           // by samples that run and prompts that are not done
  bool has_place() const { return places_taken() < options_.sequences_max; }

  // Returns the longest sequence that fits into the cache alone, in tokens; INT_MAX without a limit.
  int tokens_max() const;

  // Chooses the feeds of the next step from the active requests.
  void plan(Nanos now);
  // After plan(): makes `next` active and plans it too, if there is room. Returns whether it was taken. A request that
  // can never fit fails and is not taken.
  bool admit(std::unique_ptr<Request>& next);
  // The plan. It borrows from the requests.
  std::span<const Feed> feeds() const { return feeds_; }
  std::span<const Slot> slots() const { return slots_; }
  const StepMetrics::Step& step() const { return step_; }
  // To be called after the step succeeded: the planned tokens are in the cache.
  void fed();

  // Gives a sample its sequence: a fork of the sequence of the prompt, that sequence itself, or none until there is
  // room. Returns false if the caller must try again later.
  bool start(std::unique_ptr<Running>& running);
  // Removes finished samples.
  void remove_finished();
  // Closes the sequence of the prompt, since no sample starts from it any more.
  void close_stem(Request& request);
  // Frees the blocks of a request and returns it; it is no longer active.
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

  DecodeEngine& engine_;
  const SamplerOptions& options_;
  const StepMetrics& metrics_;

  Requests active_;
  std::unordered_map<AdapterId, AdapterUse> adapters_;
  // The plan of the next step.
  std::vector<Feed> feeds_;
  std::vector<Slot> slots_;
  StepMetrics::Step step_;
  size_t tokens_left_ = 0;  // of the budget, after the running sequences
  int64_t promised_ = 0;    // blocks that the planned feeds will take
  bool preempted_ = false;  // a sequence was preempted
  bool stalled_ = false;    // a sequence waits for blocks, so no younger one starts or resumes
  uint64_t step_number_ = 0;
  Nanos now_ = 0;
};

}  // namespace tuft::engine
