// The part of Schedule that counts the blocks of the KV cache and decides who releases them.
#include <algorithm>
#include <limits>
#include <utility>

#include "engine/sample/schedule.h"

namespace tuft::engine {
int Schedule::tokens_max() const {
  const KvUsage usage = engine_.kv_usage();
  if (usage.limit == 0) return std::numeric_limits<int>::max();
  return static_cast<int>(
      std::min<int64_t>(usage.limit / usage.block * usage.positions, std::numeric_limits<int>::max()));
}

int64_t Schedule::free_blocks() const {
  const KvUsage usage = engine_.kv_usage();
  if (usage.limit == 0) return std::numeric_limits<int64_t>::max();
  return (usage.limit - usage.used) / usage.block - promised_;
}

int64_t Schedule::blocks_for(size_t length, size_t more) const {
  const int positions = engine_.kv_usage().positions;
  if (positions == 0) return 0;
  const auto size = static_cast<size_t>(positions);
  return static_cast<int64_t>((length + more + size - 1) / size - (length + size - 1) / size);
}

// The full blocks of the prompt count once, since the samples share them.
int64_t Schedule::blocks_of(const Request& request) const {
  const int positions = engine_.kv_usage().positions;
  if (positions == 0) return 0;
  const int64_t prompt = static_cast<int64_t>(request.what.prompt.size()) / positions;
  int64_t shared = 0;
  int64_t own = 0;
  const auto count = [&](size_t length) {
    const int64_t blocks = blocks_for(0, length);
    shared = std::max(shared, std::min(blocks, prompt));
    own += std::max<int64_t>(blocks - prompt, 0);
  };
  if (request.stem) count(request.prompt_fed);
  for (const auto& running : request.running) {
    if (running->sequence) count(running->length());
  }
  return shared + own;
}

std::map<uint64_t, int64_t> Schedule::blocks_by_scope() const {
  std::map<uint64_t, int64_t> held;
  for (const auto& request : active_) held[request->scope] += blocks_of(*request);
  return held;
}

// Returns how many blocks the youngest sequences of the tenant that are not in the plan would release, if they were
// preempted one by one until it has released `surplus` or more.
int64_t Schedule::obtainable(const Tenant& tenant, int64_t surplus) const {
  int64_t released = 0;
  for (auto at = active_.rbegin(); at != active_.rend() && released < surplus; ++at) {
    const Request& request = **at;
    if (request.tenant != &tenant) continue;
    const int64_t shared = blocks_for(0, request.what.prompt.size());
    int64_t rest = blocks_of(request);
    bool all = true;
    const auto release = [&](size_t length, bool planned) {
      all = all && !planned;
      if (planned || released >= surplus) return;
      const int64_t own = std::min(rest, std::max<int64_t>(0, blocks_for(0, length) - shared));
      rest -= own;
      released += own;
    };
    if (request.stem) release(request.prompt_fed, request.planned == step_number_);
    for (auto running = request.running.rbegin(); running != request.running.rend(); ++running) {
      if ((*running)->sequence) release((*running)->length(), (*running)->planned == step_number_);
    }
    if (all && released < surplus) released += rest;  // what they share
  }
  return released;
}

// Makes room for a sequence that grows, or for the oldest one.
bool Schedule::make_room(const Slot& who, int64_t blocks) {
  const bool first = is_first();
  while (free_blocks() < blocks) {
    if (preempt_larger(who, blocks)) continue;
    if (preempt_youngest(first ? nullptr : who.request().tenant, who)) continue;
    if (!first || !release_finished_stem()) return false;
  }
  return true;
}

// Releases the blocks of a finished prompt from which samples are still to start. They may wait for places that younger
// sequences have, and these for blocks.
bool Schedule::release_finished_stem() {
  const auto found = std::find_if(active_.rbegin(), active_.rend(),
                                  [](const auto& request) { return request->stem && request->prompt_was_done; });
  if (found == active_.rend()) return false;
  release_stem(**found);
  return true;
}

// Makes room for a new sequence at the cost of tenants that hold more than this one would then. Preempts nobody if that
// does not suffice.
bool Schedule::make_room_to_open(const Slot& who, int64_t blocks) {
  if (free_blocks() >= blocks || tenants_.size() < 2) return free_blocks() >= blocks;
  const auto held = blocks_by_scope();
  const int64_t limit = held.at(who.request().scope) + blocks;
  int64_t reach = free_blocks();
  for (const auto& [scope, count] : held) {
    if (scope != who.request().scope) reach += obtainable(tenants_.at(scope), count - limit);
  }
  if (reach < blocks) return false;
  while (free_blocks() < blocks) {
    if (!preempt_larger(who, blocks)) return false;
  }
  return true;
}

// Preempts the youngest sequence of the tenant that holds most, if that is more than the tenant of `who` would hold
// with `blocks` more. So nobody takes blocks back from the one that needed them.
bool Schedule::preempt_larger(const Slot& who, int64_t blocks) {
  if (tenants_.size() < 2) return false;
  auto held = blocks_by_scope();
  const int64_t limit = held[who.request().scope] + blocks;
  held.erase(who.request().scope);
  while (!held.empty()) {
    const auto most =
        std::max_element(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most->second <= limit) return false;
    if (preempt_youngest(&tenants_.at(most->first), who)) return true;
    held.erase(most);
  }
  return false;
}

// Preempts the youngest sequence of the tenant (null: of all) that has blocks and is not in the plan; returns false if
// none is younger than `who`. Within a request a sample is older than those with larger numbers, and the prompt, from
// which more of them start, is the youngest.
bool Schedule::preempt_youngest(const Tenant* tenant, const Slot& who) {
  for (auto at = active_.rbegin(); at != active_.rend(); ++at) {
    Request& request = **at;
    if (tenant != nullptr && request.tenant != tenant) continue;
    if (&request == who.prompt) return false;
    if (request.stem && request.planned != step_number_) {
      release_stem(request);
      return true;
    }
    for (auto running = request.running.rbegin(); running != request.running.rend(); ++running) {
      if (running->get() == who.running) return false;
      if (!(*running)->sequence || (*running)->planned == step_number_) continue;
      preempt(**running);
      return true;
    }
  }
  return false;
}

void Schedule::preempt(Running& running) {
  Request& request = *running.request;
  preempted_ = step_.short_of_blocks = true;
  engine_.close(*running.sequence);
  running.sequence.reset();
  running.preempted = now_;
  running.replay_fed = 0;
  if (running.replay.empty()) {
    const auto& output = request.result.sequences[static_cast<size_t>(running.sample)].tokens;
    running.replay = request.what.prompt;
    running.replay.insert(running.replay.end(), output.begin(), output.end());
  }
  ++request.result.preemptions;
  metrics_.preempted(request.what.trace, running.replay.size());
}

// A finished prompt stays finished: its samples need only its last logits, and blocks of their own when they start.
void Schedule::release_stem(Request& request) {
  const bool ran = request.prompt_fed > 0 && !request.prompt_was_done;
  preempted_ = step_.short_of_blocks = true;
  close_stem(request);
  if (!ran) return;
  ++request.result.preemptions;
  metrics_.preempted(request.what.trace, std::exchange(request.prompt_fed, 0));
}

void Schedule::close_stem(Request& request) {
  if (request.stem) engine_.close(*request.stem);
  request.stem.reset();
}

}  // namespace tuft::engine
