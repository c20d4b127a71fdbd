#include "engine/sample/schedule.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "telemetry/context.h"

namespace tuft::engine {
namespace {

bool same_beginning(const std::vector<int32_t>& left, const std::vector<int32_t>& right, size_t count) {
  return left.size() >= count && right.size() >= count &&
         std::equal(left.begin(), left.begin() + static_cast<ptrdiff_t>(count), right.begin());
}

}  // namespace

Schedule::~Schedule() {
  while (!active_.empty()) remove(*active_.back());
}

int Schedule::places_taken() const {
  size_t count = 0;
  for (const auto& request : active_) count += request->running.size() + (request->prompt_was_done ? 0 : 1);
  return static_cast<int>(count);
}

// Returns false while others need the places that are left. Every tenant may take its part of the places.
bool Schedule::has_place(const Tenant& tenant) const {
  if (places_taken() < options_.sequences_max) return true;
  size_t taken = 0;
  for (const auto& request : active_) {
    if (request->tenant == &tenant) taken += request->running.size() + (request->prompt_was_done ? 0 : 1);
  }
  return taken < std::max<size_t>(1, static_cast<size_t>(options_.sequences_max) / tenants_.size());
}

void Schedule::enqueue(std::unique_ptr<Request> request) {
  Tenant& tenant = tenants_[request->scope];
  request->tenant = &tenant;
  const size_t cost = whole_prompt_cost(*request);
  try {
    tenant.waiting.push_back(std::move(request));
  } catch (const std::bad_alloc&) {
    drop_if_empty(*request);  // it was not moved
    throw;
  }
  tenant.waiting_cost += cost;
  ++waiting_;
}

// ---- the plan

void Schedule::plan(Nanos now) {
  now_ = now;
  feeds_.clear();
  slots_.clear();
  step_ = {};
  promised_ = 0;
  ++step_number_;
  plan_turns();
  if (feeds_.empty() && pays_debts_) {
    for (auto& [scope, tenant] : tenants_) tenant.debt = 0;
    plan_turns();
  }
  // This cannot happen: what fits alone was checked, and the oldest request preempts all others.
  if (feeds_.empty() && stalled_ && !preempted_) {
    active_.front()->fail({ErrorCode::kResourceExhausted,
                           "the KV cache has no room for the oldest request; request fewer tokens", "kv_cache_full"});
  }
}

void Schedule::plan_turns() {
  stalled_ = preempted_ = pays_debts_ = false;
  begin_turns();
  share_tokens();
  for (bool more = true; std::exchange(more, false);) {
    for (Tenant* tenant : turns_) more = take_turn(*tenant) || more;
  }
}

// Lists what each tenant could feed.
void Schedule::begin_turns() {
  turns_.clear();
  for (auto& [scope, tenant] : tenants_) {
    tenant.items.clear();
    tenant.next = tenant.decodes = 0;
    tenant.wanted = tenant.waiting_cost;
    tenant.has_turns = tenant.stalled = false;
  }
  for (const auto& request : active_) {
    Tenant& tenant = *request->tenant;
    if (!std::exchange(tenant.has_turns, true)) turns_.push_back(&tenant);
    if (request->failure) continue;
    for (const auto& running : request->running) {
      const Slot& item = tenant.items.emplace_back(running.get(), nullptr, 1);
      const size_t fed = running->replay_fed;
      running->replay.empty() ? tenant.decodes += cost_of(item, running->length(), 1)
                              : tenant.wanted += cost_of(item, fed, running->replay.size() - fed);
    }
    if (request->prompt_was_done) continue;
    const Slot& item = tenant.items.emplace_back(nullptr, request.get(), 1);
    tenant.wanted += cost_of(item, request->prompt_fed, request->what.prompt.size() - request->prompt_fed);
  }
  const auto newcomers = static_cast<ptrdiff_t>(turns_.size());
  for (auto& [scope, tenant] : tenants_) {
    if (!tenant.has_turns) turns_.push_back(&tenant);
  }
  std::sort(turns_.begin() + newcomers, turns_.end(), [](const Tenant* left, const Tenant* right) {
    return left->waiting.front()->number < right->waiting.front()->number;
  });
}

// Plans the next item of the tenant, or makes its next request active. Returns false if there is none for this step.
bool Schedule::take_turn(Tenant& tenant) {
  if (feeds_.size() >= static_cast<size_t>(options_.sequences_max)) return false;
  if (tenant.next == tenant.items.size()) return admit(tenant);
  const Slot item = tenant.items[tenant.next++];
  if (item.running != nullptr) {
    plan_running(*item.running);
  } else {
    plan_prompt(*item.prompt);
  }
  return true;
}

// The first request of a tenant becomes active although there is no room for its blocks, so that it becomes the oldest.
bool Schedule::admit(Tenant& tenant) {
  if (tenant.waiting.empty() || tenant.stalled || tenant.tokens_left == 0 || !has_place(tenant)) return false;
  activate(tenant);
  Request& request = *active_.back();
  const bool opened = open({nullptr, &request});
  if (!opened && !request.failure && tenant.active > 1) {
    wait_again(tenant);
    return false;
  }
  if (request.what.adapter) {
    request.adapter = &adapters_[*request.what.adapter];
    ++request.adapter->requests;
  }
  if (opened) {
    plan_prompt(request);
  } else if (!request.failure) {
    stall(tenant);
  }
  return true;
}

void Schedule::activate(Tenant& tenant) {
  active_.push_back(std::move(tenant.waiting.front()));
  tenant.waiting.pop_front();
  tenant.waiting_cost -= whole_prompt_cost(*active_.back());
  ++tenant.active;
  --waiting_;
}

void Schedule::wait_again(Tenant& tenant) {
  const size_t cost = whole_prompt_cost(*active_.back());
  tenant.waiting.push_front(std::move(active_.back()));
  tenant.waiting_cost += cost;
  active_.pop_back();
  --tenant.active;
  ++waiting_;
}

// Opens the sequence of a prompt, or of a preempted sample, if there is room for all of its tokens: with less it would
// soon be preempted. Unless it is the oldest, it leaves one more block for each running sequence.
bool Schedule::open(const Slot& who) {
  Request& request = who.request();
  const auto opened = engine_.open(request.what.adapter, request.scope);
  if (!opened.ok()) {
    request.fail(opened.error());
    return false;
  }
  size_t length = 0;
  size_t total = request.what.prompt.size();
  if (who.running != nullptr) {
    who.running->sequence = *opened;
    total = who.running->replay.size();
    length = static_cast<size_t>(engine_.adopt_prefix(*opened, who.running->replay));
  } else {
    request.stem = *opened;
    take_over(request);
    length = request.prompt_fed;
  }
  const int64_t blocks = blocks_for(length, total - length);
  const bool fits =
      is_first() ? make_room(who, blocks) : make_room_to_open(who, blocks + static_cast<int64_t>(feeds_.size()));
  if (fits) {
    if (who.running != nullptr) who.running->replay_fed = length;
    return true;
  }
  step_.short_of_blocks = true;
  engine_.close(*opened);
  if (who.running != nullptr) {
    who.running->sequence.reset();
    return false;
  }
  request.stem.reset();
  request.prompt_fed = 0;
  if (request.result.preemptions == 0) request.result.cached_tokens = 0;
  return false;
}

// Feeds the newest token of a sample that was not preempted.
void Schedule::plan_token(Running& running) {
  Request& request = *running.request;
  Tenant& tenant = *request.tenant;
  if (tenant.decodes == 0) return;
  const Slot who{&running, nullptr, 1};
  const size_t length = running.length();
  if (!make_room(who, blocks_for(length, 1))) {
    preempt(running);
    stall(tenant);
    return;
  }
  add(who, {*running.sequence, {&running.last, 1}, 1}, length);
  running.planned = step_number_;
  pay(tenant, tenant.decodes, cost_of(who, length, 1));
  ++step_.decode_tokens;
}

void Schedule::plan_running(Running& running) {
  if (running.replay.empty()) return plan_token(running);
  Request& request = *running.request;
  Tenant& tenant = *request.tenant;
  const Slot who{&running, nullptr, 1};
  if (!running.sequence) {
    if (tenant.stalled || tenant.tokens_left == 0 || !open(who)) return stall(tenant);
    // A sample without an earlier sequence lost nothing.
    if (const Nanos since = std::exchange(running.preempted, 0); since != 0) {
      auto& interruptions = request.result.interruptions;
      if (interruptions.size() < kInterruptionsMax)
        interruptions.push_back({since, now_, static_cast<int>(running.replay.size())});
      metrics_.recomputed(running.replay.size() - 1 - running.replay_fed);
    }
  }
  const size_t count = fit(who, running.replay_fed, running.replay.size() - running.replay_fed);
  if (count == 0) return;
  const bool ends = running.replay_fed + count == running.replay.size();
  add({&running, nullptr, count},
      {*running.sequence, std::span<const int32_t>(running.replay).subspan(running.replay_fed, count), ends ? 1 : 0},
      running.replay_fed);
  running.planned = step_number_;
  step_.prefill_tokens += count;
  pay(tenant, tenant.tokens_left, cost_of(who, running.replay_fed, count));
}

void Schedule::plan_prompt(Request& request) {
  Tenant& tenant = *request.tenant;
  const Slot who{nullptr, &request, 1};
  if (!request.stem) {
    if (tenant.stalled || tenant.tokens_left == 0 || !open(who)) return stall(tenant);
  } else {
    take_over(request);
  }
  if (twin_is_fed(request)) return;
  const std::span<const int32_t> prompt(request.what.prompt);
  const size_t first = request.prompt_fed;
  const size_t count = fit(who, first, prompt.size() - first);
  if (count == 0) return;
  const bool ends = first + count == prompt.size();
  // The logits of a position belong to the next token.
  const size_t wanted = std::max(first, request.rows_known - 1);
  const size_t rows = wanted < first + count ? first + count - wanted : 0;
  TUFT_CHECK(!ends || rows > 0, "the end of a prompt requests logits");
  add({nullptr, &request, count}, {*request.stem, prompt.subspan(first, count), static_cast<int>(rows)}, first);
  request.planned = step_number_;
  if (request.times.started == 0) {
    request.times.started = now_;
    const telemetry::ContextScope scope(request.what.trace);
    metrics_.queued(now_ - request.times.arrived);
  }
  step_.prefill_tokens += count;
  pay(tenant, tenant.tokens_left, cost_of(who, first, count));
}

// Also reuses blocks that other requests have computed meanwhile. Tokens whose rows must be scored are fed again.
void Schedule::take_over(Request& request) {
  const std::span<const int32_t> prompt(request.what.prompt);
  const size_t usable = request.rows_known;
  if (usable <= request.prompt_fed) return;
  const int count = engine_.adopt_prefix(*request.stem, prompt.first(usable).subspan(request.prompt_fed));
  request.prompt_fed += static_cast<size_t>(count);
  if (request.result.preemptions == 0) request.result.cached_tokens += count;
}

// Returns true if another request computes the next block of this prompt in this step; the next step can reuse it.
bool Schedule::twin_is_fed(const Request& request) const {
  const auto positions = static_cast<size_t>(engine_.kv_usage().positions);
  if (positions == 0 || request.prompt_fed % positions != 0) return false;
  const size_t end = request.prompt_fed + positions;
  if (end >= request.rows_known) return false;
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    const Request* other = slot.prompt;
    return other != nullptr && other->prompt_fed + slot.tokens >= end && other->scope == request.scope &&
           other->what.adapter == request.what.adapter && same_beginning(other->what.prompt, request.what.prompt, end);
  });
}

// Returns how many of the tokens can be fed now.
size_t Schedule::fit(const Slot& who, size_t length, size_t tokens) {
  Tenant& tenant = *who.request().tenant;
  size_t count = affordable(who, length, tokens);
  if (make_room(who, blocks_for(length, count))) return count;
  const int64_t blocks = free_blocks();
  while (count > 0 && blocks_for(length, count) > blocks) --count;
  if (count == 0) stall(tenant);
  step_.short_of_blocks = true;
  return count;
}

void Schedule::add(const Slot& slot, const Feed& feed, size_t length) {
  promised_ += blocks_for(length, feed.tokens.size());
  feeds_.push_back(feed);
  slots_.push_back(slot);
  ++step_.sequences;
  AdapterUse* const use = slot.request().adapter;
  if (use != nullptr && std::exchange(use->last_step, step_number_) != step_number_) ++step_.adapters;
}

void Schedule::fed() {
  for (const Slot& slot : slots_) {
    if (slot.prompt != nullptr) {
      prompt_fed(*slot.prompt, slot.tokens);
      continue;
    }
    Running& running = *slot.running;
    if (running.fresh) running.last = running.next;
    if (running.replay.empty()) continue;
    running.replay_fed += slot.tokens;
    if (running.replay_fed == running.replay.size()) std::vector<int32_t>().swap(running.replay);
  }
}

void Schedule::prompt_fed(Request& request, size_t tokens) {
  request.prompt_fed += tokens;
  request.prompt_was_done = request.prompt_fed == request.what.prompt.size();
  // Of a prompt whose positions are scored, only the tokens before them can be found in the cache.
  if (!request.prompt_was_done || request.plain_tokens() == 0) return;
  metrics_.prefix(request.plain_tokens(), static_cast<size_t>(request.result.cached_tokens));
}

// ---- samples

bool Schedule::start(std::unique_ptr<Running>& running) {
  Request& request = *running->request;
  const bool last = running->sample + 1 == request.what.num_samples;
  request.running.reserve(static_cast<size_t>(request.what.num_samples));  // or its sequence could be lost
  if (!request.stem) {
    running->replay = request.what.prompt;
    running->replay.push_back(running->last);
  } else if (last) {
    running->sequence = std::exchange(request.stem, std::nullopt);
  } else if (const auto forked = engine_.fork(*request.stem); forked.ok()) {
    running->sequence = *forked;
  } else if (forked.error().code != ErrorCode::kResourceExhausted) {
    request.fail(forked.error());
    return false;
  } else if (request.running.empty()) {
    running->sequence = std::exchange(request.stem, std::nullopt);
  } else {
    return false;
  }
  request.running.push_back(std::move(running));
  return true;
}

void Schedule::remove_finished() {
  for (const auto& request : active_) {
    std::erase_if(request->running, [&](const auto& running) {
      if (!running->finished) return false;
      ++request->samples_finished;
      engine_.close(*running->sequence);
      return true;
    });
  }
}

std::unique_ptr<Request> Schedule::remove(const Request& request) {
  const auto found =
      std::find_if(active_.begin(), active_.end(), [&](const auto& entry) { return entry.get() == &request; });
  std::unique_ptr<Request> owner = std::move(*found);
  active_.erase(found);
  for (const auto& running : owner->running) {
    if (running->sequence) engine_.close(*running->sequence);
  }
  close_stem(*owner);
  if (owner->adapter != nullptr && --owner->adapter->requests == 0) adapters_.erase(*owner->what.adapter);
  --owner->tenant->active;
  drop_if_empty(*owner);
  return owner;
}

std::unique_ptr<Request> Schedule::remove_oldest_waiting() {
  uint64_t oldest = 0;
  for (const auto& [scope, tenant] : tenants_) {
    if (tenant.waiting.empty()) continue;
    const uint64_t number = tenant.waiting.front()->number;
    oldest = oldest == 0 ? number : std::min(oldest, number);
  }
  return oldest == 0 ? nullptr : remove(oldest);
}

std::unique_ptr<Request> Schedule::remove(uint64_t number) {
  const auto is_it = [number](const auto& request) { return request->number == number; };
  const auto active = std::find_if(active_.begin(), active_.end(), is_it);
  if (active != active_.end()) return remove(**active);
  for (auto& [scope, tenant] : tenants_) {
    const auto found = std::find_if(tenant.waiting.begin(), tenant.waiting.end(), is_it);
    if (found == tenant.waiting.end()) continue;
    std::unique_ptr<Request> owner = std::move(*found);
    tenant.waiting.erase(found);
    tenant.waiting_cost -= whole_prompt_cost(*owner);
    --waiting_;
    drop_if_empty(*owner);
    return owner;
  }
  return nullptr;
}

void Schedule::drop_if_empty(const Request& request) {
  if (request.tenant->active == 0 && request.tenant->waiting.empty()) tenants_.erase(request.scope);
}

}  // namespace tuft::engine
