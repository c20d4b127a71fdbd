#include "engine/sample/schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

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

int Schedule::tokens_max() const {
  const KvUsage usage = engine_.kv_usage();
  if (usage.limit == 0) return std::numeric_limits<int>::max();
  return static_cast<int>(
      std::min<int64_t>(usage.limit / usage.block * usage.positions, std::numeric_limits<int>::max()));
}

// ---- blocks

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

bool Schedule::make_room(const Slot& who, int64_t blocks) {
  while (free_blocks() < blocks) {
    if (!preempt_younger(who)) return false;
  }
  return true;
}

// Preempts the youngest sequence that has blocks; returns false if none is younger than `who`. Within a request a
// sample is older than those with larger numbers, and the prompt, from which more of them start, is the youngest.
bool Schedule::preempt_younger(const Slot& who) {
  for (auto request = active_.rbegin(); request != active_.rend(); ++request) {
    if (request->get() == who.prompt) return false;
    if ((*request)->stem) {
      release_stem(**request);
      return true;
    }
    auto& samples = (*request)->running;
    for (auto running = samples.rbegin(); running != samples.rend(); ++running) {
      if (running->get() == who.running) return false;
      if (!(*running)->sequence) continue;
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

// ---- the plan

void Schedule::plan(Nanos now) {
  now_ = now;
  feeds_.clear();
  slots_.clear();
  step_ = {};
  promised_ = 0;
  stalled_ = preempted_ = false;
  ++step_number_;
  size_t decoding = 0;
  for (const auto& request : active_) {
    decoding += static_cast<size_t>(std::count_if(request->running.begin(), request->running.end(),
                                                  [](const auto& running) { return running->replay.empty(); }));
  }
  const auto budget = static_cast<size_t>(options_.batch_tokens);
  tokens_left_ = budget > decoding ? budget - decoding : 0;
  for (const auto& request : active_) {
    if (request->failure) continue;
    for (const auto& running : request->running) plan_running(*running);
    if (!request->prompt_was_done) plan_prompt(*request);
  }
  // This cannot happen: what fits alone was checked, and the oldest request preempts all others.
  if (feeds_.empty() && stalled_ && !preempted_) {
    active_.front()->fail({ErrorCode::kResourceExhausted,
                           "the KV cache has no room for the oldest request; request fewer tokens", "kv_cache_full"});
  }
}

bool Schedule::admit(std::unique_ptr<Request>& next) {
  if (stalled_ || tokens_left_ == 0 || !has_place()) return false;
  active_.push_back(std::move(next));
  Request& request = *active_.back();
  if (!open({nullptr, &request})) {
    next = std::move(active_.back());
    active_.pop_back();
    return false;
  }
  if (request.what.adapter) {
    request.adapter = &adapters_[*request.what.adapter];
    ++request.adapter->requests;
  }
  plan_prompt(request);
  return true;
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
    total = who.running->replay.size();
    length = static_cast<size_t>(engine_.adopt_prefix(*opened, who.running->replay));
  } else {
    request.stem = *opened;
    take_over(request);
    length = request.prompt_fed;
  }
  const int64_t blocks = blocks_for(length, total - length);
  const bool oldest = feeds_.empty() && !stalled_;
  if (oldest ? make_room(who, blocks) : free_blocks() >= blocks + static_cast<int64_t>(feeds_.size())) {
    if (who.running == nullptr) return true;
    who.running->sequence = *opened;
    who.running->replay_fed = length;
    return true;
  }
  step_.short_of_blocks = true;
  engine_.close(*opened);
  if (who.running == nullptr) {
    request.stem.reset();
    request.prompt_fed = 0;
    if (request.result.preemptions == 0) request.result.cached_tokens = 0;
  }
  return false;
}

void Schedule::plan_running(Running& running) {
  Request& request = *running.request;
  const Slot who{&running, nullptr, 1};
  const auto& output = request.result.sequences[static_cast<size_t>(running.sample)].tokens;
  if (running.replay.empty()) {
    const size_t length = request.what.prompt.size() + output.size() - 1;
    if (!make_room(who, blocks_for(length, 1))) {
      preempt(running);
      stalled_ = true;
      return;
    }
    add(who, {*running.sequence, {&running.last, 1}, 1}, length);
    ++step_.decode_tokens;
    return;
  }
  if (!running.sequence) {
    if (stalled_ || tokens_left_ == 0 || !open(who)) {
      stalled_ = true;
      return;
    }
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
  step_.prefill_tokens += count;
  tokens_left_ -= count;
}

void Schedule::plan_prompt(Request& request) {
  const Slot who{nullptr, &request, 1};
  if (!request.stem) {
    if (stalled_ || tokens_left_ == 0 || !open(who)) {
      stalled_ = true;
      return;
    }
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
  const size_t wanted =
      request.wants_prompt_rows() ? std::max(first, request.prompt_rows_known() - 1) : prompt.size() - 1;
  const size_t rows = wanted < first + count ? first + count - wanted : 0;
  TUFT_CHECK(!ends || rows > 0, "the end of a prompt requests logits");
  add({nullptr, &request, count}, {*request.stem, prompt.subspan(first, count), static_cast<int>(rows)}, first);
  step_.prefill_tokens += count;
  tokens_left_ -= count;
}

// Also reuses blocks that other requests have computed meanwhile.
void Schedule::take_over(Request& request) {
  const std::span<const int32_t> prompt(request.what.prompt);
  const size_t usable = request.prompt_rows_known();
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
  if (end >= request.prompt_rows_known()) return false;
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    const Request* other = slot.prompt;
    return other != nullptr && other->prompt_fed + slot.tokens >= end && other->scope == request.scope &&
           other->what.adapter == request.what.adapter && same_beginning(other->what.prompt, request.what.prompt, end);
  });
}

// Returns how many of the tokens can be fed now.
size_t Schedule::fit(const Slot& who, size_t length, size_t tokens) {
  size_t count = std::min(tokens, tokens_left_);
  if (make_room(who, blocks_for(length, count))) return count;
  const int64_t blocks = free_blocks();
  while (count > 0 && blocks_for(length, count) > blocks) --count;
  if (count == 0) stalled_ = true;
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
  if (!request.prompt_was_done || request.wants_prompt_rows()) return;
  metrics_.prefix(request.prompt_fed, static_cast<size_t>(request.result.cached_tokens));
}

// ---- samples

bool Schedule::start(std::unique_ptr<Running>& running) {
  Request& request = *running->request;
  const bool last = running->sample + 1 == request.what.num_samples;
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
  return owner;
}

}  // namespace tuft::engine
