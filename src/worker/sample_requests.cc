#include "worker/sample_requests.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "worker/without_exceptions.h"

namespace tuft::worker {
namespace {

Error cancelled_while_held() noexcept try {
  return {ErrorCode::kCancelled, "the sample request was cancelled", "cancelled"};
} catch (const std::bad_alloc&) {
  return {ErrorCode::kCancelled, "cancelled", "cancelled"};  // short enough to need no memory
}

}  // namespace

void SampleRequests::add(NewSample sample) {
  auto held = without_exceptions([&] { return hold(sample); });
  if (!held.ok()) return refuse(sample, std::move(held).error());
  if (!*held) start(std::move(sample));
}

// Takes the sample if its adapter has to come back or yields. If it throws, the sample is unchanged.
Result<bool> SampleRequests::hold(NewSample& sample) {
  const std::optional<engine::AdapterId> adapter = sample.request.adapter;
  if (adapter) pager_.looked_up(*adapter);
  if (!adapter || !pager_.exists(*adapter)) return false;
  if (pager_.in_engine(*adapter) && !pager_.yields(*adapter)) return false;
  if (pager_.in_engine(*adapter)) yielded_.insert(*adapter);
  pager_.used(*adapter);
  pager_.bring_back(*adapter, sample.request.trace);
  held_[*adapter].push_back(std::move(sample));
  return true;
}

void SampleRequests::start(NewSample sample) {
  const Ticket ticket = sample.ticket;
  auto number = without_exceptions([&] { return submit(sample); });
  if (number.ok()) {
    active_.find(ticket)->second.number = *number;
    return;
  }
  (void)take(ticket);
  refuse(sample, std::move(number).error());
}

// If it fails or throws, take() removes what it has noted.
Result<engine::Sampler::RequestNumber> SampleRequests::submit(NewSample& sample) {
  const Ticket ticket = sample.ticket;
  Active& active = active_[ticket];
  if (std::optional<engine::AdapterId> adapter = sample.request.adapter) {
    ++count_by_adapter_[*adapter];
    active.adapter = std::move(adapter);
    pager_.used(*active.adapter);
  }
  return sampler_.submit(std::move(sample.request),
                         [this, ticket, done = sample.done](Result<engine::SampleResult> result) {
                           auto node = take(ticket);
                           answered_(1);
                           if (!node.empty() && node.mapped().instead) result = std::move(*node.mapped().instead);
                           done(std::move(result));
                         });
}

std::map<SampleRequests::Ticket, SampleRequests::Active>::node_type SampleRequests::take(Ticket ticket) {
  auto node = active_.extract(ticket);
  if (node.empty() || !node.mapped().adapter) return node;
  const auto count = count_by_adapter_.find(*node.mapped().adapter);
  if (--count->second == 0) count_by_adapter_.erase(count);
  pager_.used(*node.mapped().adapter);
  return node;
}

void SampleRequests::cancel(Ticket ticket) {
  const auto found = active_.find(ticket);
  if (found != active_.end()) return sampler_.cancel(found->second.number);
  for (auto& [adapter, samples] : held_) {
    const auto held =
        std::find_if(samples.begin(), samples.end(), [&](const NewSample& one) { return one.ticket == ticket; });
    if (held == samples.end()) continue;
    NewSample sample = std::move(*held);
    samples.erase(held);
    if (samples.empty()) held_.erase(adapter);
    answered_(1);
    return sample.done(cancelled_while_held());
  }
}

void SampleRequests::fail(const engine::AdapterId& adapter, const Error& error) {
  stop(&adapter, error);
  refuse(held_.extract(adapter), error);
}

void SampleRequests::fail_all(const Error& error) {
  while (!held_.empty()) refuse(held_.extract(held_.begin()), error);
  stop(nullptr, error);
}

// Stops the active samples of the adapter, or all of them if it is null.
void SampleRequests::stop(const engine::AdapterId* adapter, const Error& error) {
  std::vector<engine::Sampler::RequestNumber> numbers;
  for (auto& [ticket, sample] : active_) {
    if (adapter != nullptr && sample.adapter != *adapter) continue;
    numbers.push_back(sample.number);
    sample.instead = copy_of(error);
  }
  for (const auto number : numbers) sampler_.cancel(number);
}

void SampleRequests::refuse(const NewSample& sample, Error error) {
  answered_(1);
  sample.done(std::move(error));
}

void SampleRequests::refuse(Held::node_type held, const Error& error) {
  if (held.empty()) return;
  answered_(held.mapped().size());
  for (const NewSample& sample : held.mapped()) sample.done(copy_of(error));
}

void SampleRequests::adapter_arrived(const AdapterPager::Arrival& arrival) {
  auto held = held_.extract(arrival.adapter);
  if (!arrival.status.ok()) return refuse(std::move(held), arrival.status.error());
  if (!held.empty()) start(std::move(held));
}

void SampleRequests::resume() {
  // Those in the engine come first, so that none of them is paged out for one that is asked for.
  for (auto at = yielded_.begin(); at != yielded_.end();) {
    if (!pager_.in_engine(*at) || pager_.yields(*at)) {
      ++at;
      continue;
    }
    if (auto held = held_.extract(*at); !held.empty()) start(std::move(held));
    at = yielded_.erase(at);
  }
  for (auto at = yielded_.begin(); at != yielded_.end();) {
    if (pager_.in_engine(*at)) {
      ++at;
      continue;
    }
    const auto held = held_.find(*at);
    if (held != held_.end() && !held->second.empty()) {
      pager_.bring_back(*at, held->second.front().request.trace);
    }
    at = yielded_.erase(at);
  }
}

void SampleRequests::start(Held::node_type held) {
  for (NewSample& sample : held.mapped()) start(std::move(sample));
}

size_t SampleRequests::held() const {
  size_t count = 0;
  for (const auto& [adapter, samples] : held_) count += samples.size();
  return count;
}

}  // namespace tuft::worker
