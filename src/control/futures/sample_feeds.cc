#include "control/futures/sample_feeds.h"

#include <algorithm>

namespace tuft::control {

std::optional<SampleFeed> SampleFeeds::feed_of(const OperationKeys& keys) {
  if (keys.operation != OperationType::kSample || !keys.seq_id) return std::nullopt;
  return SampleFeed{keys.sampler, *keys.seq_id / kSamplesOfClient};
}

// The wall clock lets cursors rise over a restart.
int64_t SampleFeeds::next_cursor(Nanos wall) {
  last_cursor_ = std::max(last_cursor_ + 1, wall / kMicrosecond);
  return last_cursor_;
}

bool SampleFeeds::may_outlive(const UserId& user) const {
  const auto held = outliving_.find(user);
  return held == outliving_.end() || held->second < static_cast<int64_t>(kOutlivingMax);
}

void SampleFeeds::began(const Future& future) {
  const auto key = feed_of(future.keys);
  if (!key) return;
  Feed& feed = feeds_[*key];
  feed.user = future.user;
  ++feed.unfinished;
}

std::vector<std::pair<SampleFeeds::Done, SampleNews>> SampleFeeds::finished(Future& future, Nanos wall) {
  std::vector<std::pair<Done, SampleNews>> told;
  const auto key = feed_of(future.keys);
  if (!key) return told;
  Feed& feed = feeds_[*key];
  feed.user = future.user;
  if (feed.unfinished > 0) --feed.unfinished;  // a restored future did not begin here
  future.cursor_ = next_cursor(wall);
  const bool failed = future.state_ == FutureSnapshot::State::kFailed;
  feed.completions[future.cursor_] = {{future.request, failed, future.result_bytes_}, true};
  for (Waiter& waiter : std::exchange(feed.waiters, {})) {
    told.emplace_back(std::move(waiter.done), page(feed, waiter.after));
  }
  return told;
}

void SampleFeeds::forgotten(const Future& future) {
  const auto key = feed_of(future.keys);
  if (!key) return;
  const auto feed = feeds_.find(*key);
  if (feed == feeds_.end()) return;
  const auto completion = feed->second.completions.find(future.cursor_);
  if (completion == feed->second.completions.end()) return;
  if (feed->second.was_asked && may_outlive(future.user)) {
    completion->second.has_future = false;
    return count_outliving(future.user, 1);
  }
  feed->second.completions.erase(completion);
  drop_if_idle(feed);
}

void SampleFeeds::lost(const UserId& user, const RequestId& request, const OperationKeys& keys, Nanos wall) {
  const auto key = feed_of(keys);
  if (!key || !may_outlive(user)) return;
  Feed& feed = feeds_[*key];
  feed.user = user;
  feed.completions[next_cursor(wall)] = {{request, true, 0}, false};
  count_outliving(user, 1);
}

SampleNews SampleFeeds::page(const Feed& feed, int64_t after) const {
  SampleNews news;
  news.cursor = after;
  for (auto next = feed.completions.upper_bound(confirmed_by(after));
       next != feed.completions.end() && news.completions.size() < kPageMax; ++next) {
    news.completions.push_back(next->second.what);
    news.cursor = next->first;
  }
  return news;
}

SampleNews SampleFeeds::news(const SampleFeed& key, int64_t after) {
  const auto found = feeds_.find(key);
  if (found == feeds_.end()) return {{}, after};
  Feed& feed = found->second;
  feed.was_asked = true;
  const auto rest = feed.completions.upper_bound(confirmed_by(after));
  for (auto confirmed = feed.completions.begin(); confirmed != rest; ++confirmed) {
    if (!confirmed->second.has_future) count_outliving(feed.user, -1);
  }
  feed.completions.erase(feed.completions.begin(), rest);
  SampleNews news = page(feed, after);
  drop_if_idle(found);
  return news;
}

void SampleFeeds::wait(const SampleFeed& key, Waiter waiter) {
  Feed& feed = feeds_[key];
  feed.was_asked = true;
  feed.waiters.push_back(std::move(waiter));
}

std::optional<SampleFeeds::Waiter> SampleFeeds::take_waiter(const SampleFeed& key, uint64_t number) {
  const auto feed = feeds_.find(key);
  if (feed == feeds_.end()) return std::nullopt;
  std::vector<Waiter>& waiters = feed->second.waiters;
  const auto found =
      std::find_if(waiters.begin(), waiters.end(), [number](const Waiter& waiter) { return waiter.number == number; });
  if (found == waiters.end()) return std::nullopt;
  Waiter waiter = std::move(*found);
  waiters.erase(found);
  drop_if_idle(feed);
  return waiter;
}

std::vector<SampleFeeds::Waiter> SampleFeeds::take_waiters() {
  std::vector<Waiter> all;
  for (auto& [key, feed] : feeds_) {
    for (Waiter& waiter : std::exchange(feed.waiters, {})) all.push_back(std::move(waiter));
  }
  return all;
}

void SampleFeeds::count_outliving(const UserId& user, int64_t change) {
  const auto held = outliving_.try_emplace(user, 0).first;
  held->second += change;
  if (held->second == 0) outliving_.erase(held);
}

void SampleFeeds::drop_if_idle(Feeds::iterator feed) {
  const Feed& idle = feed->second;
  if (idle.unfinished == 0 && idle.completions.empty() && idle.waiters.empty()) feeds_.erase(feed);
}

}  // namespace tuft::control
