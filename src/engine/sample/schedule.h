// Schedule: which requests wait, which are active, which sequences run in the next step, and which hold blocks of the
// KV cache. Internal to the sampler; confined to the engine thread.
//
// Tenants share places, tokens and blocks. A tenant gets what it can use, up to an equal part, whatever the others have
// taken before: it starts samples up to its part of the places although all are taken, so that more sequences may be
// open than one step feeds; then the youngest of the tenants with most of them pause. What is left goes to those who
// can use more. Within a tenant the oldest request comes first.
//
// A token costs one, and one more for each ModelCost::positions_per_token() positions that it attends to: 128 samples
// of a prompt of 32,768 tokens can take as long as a thousand of a short one. Rows of a prompt that are scored cost
// more, too (Request::prompt_cost). A token that costs more than is left of its tenant's part is fed all the same, and
// the tenant has less of the next steps; if nobody can be fed because of debts, all are forgiven.
//
// A step that tenants share is so short that nobody is served slower than with an equal part of the engine's time: of k
// tenants, the one that wants least waits at most k times as long for its tokens as it would if it were alone. Where
// tokens cost little beside a step itself, as on a GPU, this limits nothing; where each token costs as much as the next
// one, the larger tenants pause most of their samples until the smaller ones are done.
//
// If blocks are short, the youngest sequence of the tenant that holds most releases its blocks, waits, and is fed again
// from its tokens when there is room. The oldest sequence of all takes blocks from everybody, so that each ends.
//
// If a member throws std::bad_alloc, the schedule stays valid: requests can be removed, and their sequences are closed.
// Only enqueue(), plan() and start() need memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/model_cost.h"
#include "engine/sample/request_state.h"
#include "engine/sample/step_cost.h"
#include "engine/sample/step_metrics.h"

namespace tuft::engine {

// It has more than 25 methods: those of the step (plan, feed, end), and a short private one for each rule of sharing.
class Schedule {
 public:
  // All arguments must outlive it. Reads batch_tokens and sequences_max of the options.
  Schedule(DecodeEngine& engine, const ModelSpec& model, const SamplerOptions& options, const StepMetrics& metrics,
           const StepCost& cost)
      : engine_(engine),
        options_(options),
        metrics_(metrics),
        cost_(cost),
        positions_per_token_(static_cast<size_t>(ModelCost(model).positions_per_token())) {}
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  using Requests = std::vector<std::unique_ptr<Request>>;
  const Requests& active() const { return active_; }  // oldest first
  size_t waiting() const { return waiting_; }         // number of requests that are not active yet
  int places_taken() const;                           // by samples that run and prompts that are not done
  // Returns whether another sample of the request can start.
  bool has_place(const Request& request) const { return has_place(*request.tenant); }

  // Returns the longest sequence that fits into the cache alone, in tokens; INT_MAX without a limit.
  int tokens_max() const;

  // Adds a request, which waits until plan() makes it active.
  void enqueue(std::unique_ptr<Request> request);
  // Removes the request that has waited longest. Returns null if none waits.
  std::unique_ptr<Request> remove_oldest_waiting();
  // Chooses the feeds of the next step, and makes waiting requests active for which there is room. A request that can
  // never fit fails.
  void plan(Nanos now);
  // The plan. It borrows from the requests.
  std::span<const Feed> feeds() const { return feeds_; }
  std::span<const Slot> slots() const { return slots_; }
  const StepMetrics::Step& step() const { return step_; }
  // Returns what its tokens cost. Before fed().
  size_t step_cost() const;
  // Notes that the step succeeded: the planned tokens are in the cache.
  void fed();

  // Gives a sample its sequence: a fork of the sequence of the prompt, that sequence itself, or none until there is
  // room. Returns false if the caller must try again later.
  bool start(std::unique_ptr<Running>& running);
  // Removes finished samples.
  void remove_finished();
  // Closes the sequence of the prompt, since no sample starts from it any more.
  void close_stem(Request& request);
  // Frees the blocks of an active request and returns it.
  std::unique_ptr<Request> remove(const Request& request);
  // Removes the request, waiting or active. Returns null for an unknown number.
  std::unique_ptr<Request> remove(uint64_t number);

 private:
  // Blocks: schedule_blocks.cc.
  int64_t free_blocks() const;
  int64_t blocks_for(size_t length, size_t more) const;
  int64_t blocks_of(const Request& request) const;
  std::map<uint64_t, int64_t> blocks_by_scope() const;
  int64_t obtainable(const Tenant& tenant, int64_t surplus) const;
  bool make_room(const Slot& who, int64_t blocks);
  bool make_room_to_open(const Slot& who, int64_t blocks);
  bool preempt_larger(const Slot& who, int64_t blocks);
  bool preempt_youngest(const Tenant* tenant, const Slot& who);
  void preempt(Running& running);
  void release_stem(Request& request);
  bool release_finished_stem();

  // Tokens: schedule_tokens.cc.
  size_t attention_cost(size_t begin, size_t count) const;
  size_t prompt_cost(const Request& request, size_t begin, size_t count) const;
  size_t whole_prompt_cost(const Request& request) const { return prompt_cost(request, 0, request.what.prompt.size()); }
  size_t full_cost(const Slot& who, size_t begin, size_t count) const;
  size_t cost_of(const Slot& who, size_t begin, size_t count) const;
  static void pay(Tenant& tenant, size_t& part, size_t cost);
  size_t affordable(const Slot& who, size_t begin, size_t tokens) const;
  void share_tokens();
  void keep_blocks(Request& request) const;
  size_t limited_for(size_t lightest, size_t tokens) const;

  bool has_place(const Tenant& tenant) const;
  void plan_turns();
  void begin_turns();
  bool take_turn(Tenant& tenant);
  bool admit(Tenant& tenant);
  void activate(Tenant& tenant);
  void wait_again(Tenant& tenant);
  // Returns true if nothing is planned yet, and nothing older waits for blocks or pays a debt.
  bool is_first() const { return feeds_.empty() && !stalled_ && !oldest_pays_; }
  void stall(Tenant& tenant) { stalled_ = tenant.stalled = true; }

  bool open(const Slot& who);
  void plan_running(Running& running);
  void plan_token(Running& running);
  void plan_prompt(Request& request);
  void take_over(Request& request);
  bool twin_is_fed(const Request& request) const;
  size_t fit(const Slot& who, size_t length, size_t tokens);
  void prompt_fed(Request& request, size_t tokens);
  void add(const Slot& slot, const Feed& feed, size_t length);
  void drop_if_empty(const Request& request);

  DecodeEngine& engine_;
  const SamplerOptions& options_;
  const StepMetrics& metrics_;
  const StepCost& cost_;
  const size_t positions_per_token_;

  Requests active_;
  size_t waiting_ = 0;
  std::map<uint64_t, Tenant> tenants_;  // by scope: those with a request
  std::unordered_map<AdapterId, AdapterUse> adapters_;
  // The plan of the next step.
  std::vector<Tenant*> turns_;  // the tenant of the oldest request comes first
  std::vector<Feed> feeds_;
  std::vector<Slot> slots_;
  StepMetrics::Step step_;
  int64_t promised_ = 0;      // blocks that the planned feeds will take
  bool preempted_ = false;    // a sequence was preempted
  bool stalled_ = false;      // a sequence of some tenant waits for blocks
  bool pays_debts_ = false;   // a tenant has less of this step, because of a debt
  bool oldest_pays_ = false;  // the tenant of the oldest request has no part of this step, because of a debt
  uint64_t step_number_ = 0;
  Nanos now_ = 0;
};

}  // namespace tuft::engine
