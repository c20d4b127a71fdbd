#include "api/http/fair_turns.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "metrics/http.h"

namespace tuft::api {
namespace {

namespace asio = boost::asio;

// So many turns are taken before the first look at the clock.
constexpr int kTurnsAtOnce = 8;
// How long turns are taken or given without a break.
constexpr Nanos kRoundTime = 100 * kMicrosecond;
constexpr Nanos kPauseMax = kMillisecond;

}  // namespace

bool FairTurns::take() {
  if (is_busy_) return waiting_.empty() && system_clock().monotonic() < burst_end_;
  if (++taken_ == kTurnsAtOnce) begin_burst();
  return true;
}

asio::awaitable<void> FairTurns::wait(uint64_t client) {
  const auto enqueue = [this, client](auto resume) {
    waiting_.push(client, 1, Waiter{std::move(resume), system_clock().monotonic()});
  };
  return asio::async_initiate<decltype(asio::use_awaitable), void()>(enqueue, asio::use_awaitable);
}

// What is ready now comes before end_burst().
void FairTurns::begin_burst() {
  is_busy_ = true;
  burst_end_ = system_clock().monotonic() + kRoundTime;
  asio::post(io_, [this] { end_burst(); });
}

void FairTurns::end_burst() {
  taken_ = 0;
  is_busy_ = !waiting_.empty();
  burst_end_ = 0;
  if (is_busy_) give_turns();
}

void FairTurns::give_turns() {
  const Nanos begin = system_clock().monotonic();
  Nanos now = begin;
  for (; !waiting_.empty() && now < begin + kRoundTime; now = system_clock().monotonic()) {
    Waiter waiter = waiting_.pop();
    metrics::http().turn_wait_duration.record(to_seconds(now - waiter.since));
    std::move(waiter.resume)();
  }
  is_busy_ = !waiting_.empty();
  if (!is_busy_) return;
  pause_.expires_after(std::chrono::nanoseconds(std::min(now - begin, kPauseMax)));
  pause_.async_wait([this](const boost::system::error_code&) { give_turns(); });
}

}  // namespace tuft::api
