// Which results are dropped when there are too many bytes of them.
#include <algorithm>
#include <atomic>
#include <malloc.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "control/futures/future_store.h"
#include "control/tests/plane.h"
#include "store/memory_store.h"

namespace tuft::control {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

// FutureStore alone, with a fake clock and without persistence.
class Eviction : public ::testing::Test {
 protected:
  Eviction() { limits_.future_bytes_max = 10 * kMegabyte; }

  // Returns a finished future of the user with a result of so many bytes.
  RequestId finish(const UserId& user, int64_t bytes) {
    OperationKeys keys;
    keys.operation = OperationType::kSample;
    auto admission = futures().admit(user, std::move(keys), "", {}, {});
    EXPECT_TRUE(admission.ok());
    const RequestId request = admission->future->request;
    futures().complete(admission->future, FutureValue(ProtobufResult{std::string(static_cast<size_t>(bytes), 'x')}));
    return request;
  }
  // Fetches the result as a client does. Returns kInternal if it is there.
  ErrorCode fetch(const UserId& user, const RequestId& request) {
    ErrorCode code = ErrorCode::kInternal;
    futures().wait(user, request, [&](const Result<FutureSnapshot>& snapshot) {
      if (!snapshot.ok()) code = snapshot.error().code;
    });
    return code;
  }
  bool is_kept(const UserId& user, const RequestId& request) { return fetch(user, request) == ErrorCode::kInternal; }

  // Made at the first use, so that a test may change the limits before.
  FutureStore& futures() {
    if (futures_ == nullptr) {
      budget_ = std::make_unique<OperationBudget>(limits_);
      futures_ = std::make_unique<FutureStore>(limits_, clock_, persistence_, *budget_);
    }
    return *futures_;
  }

  config::Limits limits_;
  FakeClock clock_;
  const UserId small_{"small"};
  const UserId large_{"large"};

 private:
  Persistence persistence_;
  std::unique_ptr<OperationBudget> budget_;
  std::unique_ptr<FutureStore> futures_;
};

TEST_F(Eviction, TheUserWithTheMostBytesLosesResults) {
  const RequestId unread = finish(small_, kMegabyte);
  const RequestId read = finish(small_, kMegabyte);
  EXPECT_TRUE(is_kept(small_, read));
  std::vector<RequestId> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(finish(large_, kMegabyte));
  EXPECT_TRUE(is_kept(small_, unread));
  EXPECT_TRUE(is_kept(small_, read));
  EXPECT_EQ(fetch(large_, flood.front()), ErrorCode::kGone);
  EXPECT_TRUE(is_kept(large_, flood.back()));
}

TEST_F(Eviction, ManyEvictionsOfAUserLetAnotherKnowWhyTheirsIsGone) {
  limits_.future_bytes_max = 0;
  const RequestId gone = finish(small_, 1);
  const RequestId oldest = finish(large_, 1);
  for (size_t i = 0; i < FinishedFutures::kGoneMax + 100; ++i) finish(large_, 1);
  EXPECT_EQ(fetch(small_, gone), ErrorCode::kGone);
  EXPECT_EQ(fetch(large_, oldest), ErrorCode::kNotFound) << "the user with the most forgets";
}

TEST_F(Eviction, ManySmallResultsCountAsMuchAsFewLargeOnes) {
  const RequestId unread = finish(small_, 4 * kMegabyte);
  std::vector<RequestId> flood;
  for (int i = 0; i < 10'000; ++i) flood.push_back(finish(large_, 1000));
  EXPECT_TRUE(is_kept(small_, unread));
  EXPECT_EQ(fetch(large_, flood.front()), ErrorCode::kGone);
}

#if !defined(TUFT_SANITIZE_ADDRESS) && !defined(TUFT_SANITIZE_THREAD)
// Nearly all of a small result is its record. These have the ids that clients give them.
TEST_F(Eviction, WhatIsKeptTakesNoMoreMemoryThanTheLimit) {
  std::vector<RequestId> requests;
  const auto finish_many = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const bool is_step = requests.size() % 2 == 0;
      const RunId run("0f2c6b5e-4a1d-4b7e-9c3f-5d8a7e6b1c2d:train:7");
      OperationKeys keys;
      keys.operation = is_step ? OperationType::kOptimStep : OperationType::kForwardBackward;
      keys.session = SessionId("0f2c6b5e-4a1d-4b7e-9c3f-5d8a7e6b1c2d");
      keys.run = run;
      auto admission = futures().admit(large_, keys, run.str() + "/" + std::to_string(requests.size()), {}, {});
      ASSERT_TRUE(admission.ok());
      OptimStepResult step;
      step.metrics = {{"grad_norm", 1}, {"learning_rate", 1}, {"optimizer_step", 1}, {"update_norm", 1}};
      requests.push_back(admission->future->request);
      futures().complete(admission->future,
                         is_step ? FutureValue(std::move(step)) : FutureValue(ProtobufResult{std::string(64, 'x')}));
    }
  };
  requests.reserve(20'000);
  finish_many(1);
  constexpr int kMeasured = 4000;
  const size_t before = mallinfo2().uordblks;
  finish_many(kMeasured);
  const auto bytes_each = static_cast<int64_t>(mallinfo2().uordblks - before) / kMeasured;
  finish_many(15'000);
  const auto kept = std::count_if(requests.begin(), requests.end(),
                                  [&](const RequestId& request) { return is_kept(large_, request); });
  EXPECT_LE(kept * bytes_each, limits_.future_bytes_max) << bytes_each << " bytes each";
  EXPECT_GE(kept * bytes_each, limits_.future_bytes_max / 2) << "the charge is far too high";
}
#endif

// A store that notes how many changes one write has.
class NotingStore final : public store::KeyValue {
 public:
  explicit NotingStore(std::atomic<size_t>& most) : most_(most) {}

  Status write(store::Write write, WriteDone done) override {
    most_ = std::max(most_.load(), write.changes.size());
    return inner_->write(std::move(write), std::move(done));
  }
  Status get(std::string key, const telemetry::SpanContext& trace, GetDone done) override {
    return inner_->get(std::move(key), trace, std::move(done));
  }
  Status scan(store::Prefixes prefixes, const telemetry::SpanContext& trace, ScanDone done) override {
    return inner_->scan(std::move(prefixes), trace, std::move(done));
  }
  Status scan_keys(std::string prefix, const telemetry::SpanContext& trace, ScanDone done) override {
    return inner_->scan_keys(std::move(prefix), trace, std::move(done));
  }
  Status health() const override { return inner_->health(); }
  const std::string& name() const override { return inner_->name(); }
  void close(Nanos budget) override { inner_->close(budget); }

 private:
  std::atomic<size_t>& most_;
  const std::unique_ptr<store::KeyValue> inner_ = store::make_memory_store(std::make_shared<store::MemoryContents>());
};

// Others wait for the lock and for the store meanwhile, and Redis before version 7 takes no command of a million words.
TEST(EvictionInPieces, ThousandsThatGoAtOnceAreErasedByManyWrites) {
  std::atomic<size_t> most = 0;
  config::ServerConfig config;
  config.limits.future_bytes_max = 0;  // it was larger before the restart
  const auto persistence = Persistence::open(std::make_unique<NotingStore>(most), config);
  ASSERT_TRUE(persistence.ok()) << persistence.error().message;
  const FakeClock clock;
  OperationBudget budget(config.limits);
  FutureStore futures(config.limits, clock, **persistence, budget);
  RestorePlan plan;
  for (int i = 0; i < 2'500; ++i) {
    FutureRecord record;
    record.request = RequestId(std::to_string(i));
    record.user = UserId("alice");
    record.keys.operation = OperationType::kSample;
    record.state = FutureSnapshot::State::kReady;
    record.apart = 100;
    plan.futures.push_back(std::move(record));
  }
  futures.restore(plan);
  EXPECT_EQ(futures.kept_bytes(), 0);
  EXPECT_EQ(most, 2'000U) << "the records and the results of a thousand futures";
}

TEST_F(Eviction, OfAUserTheLongestDeliveredGoFirst) {
  const RequestId unread = finish(large_, 4 * kMegabyte);
  const RequestId first = finish(large_, 2 * kMegabyte);
  const RequestId second = finish(large_, 2 * kMegabyte);
  EXPECT_TRUE(is_kept(large_, second));
  EXPECT_TRUE(is_kept(large_, first));
  const RequestId newest = finish(large_, 3 * kMegabyte);
  EXPECT_EQ(fetch(large_, second), ErrorCode::kGone);
  for (const RequestId& kept : {unread, first, newest}) EXPECT_TRUE(is_kept(large_, kept));
}

TEST_F(Eviction, AResultOverTheWholeLimitPushesOutNobodyElse) {
  const RequestId unread = finish(small_, kMegabyte);
  const RequestId huge = finish(large_, 11 * kMegabyte);
  EXPECT_EQ(fetch(large_, huge), ErrorCode::kGone);
  EXPECT_TRUE(is_kept(small_, unread));
}

TEST_F(Eviction, AUserMayHoldAShareOnly) {
  limits_.future_bytes_per_user_max = 5 * kMegabyte;
  std::vector<RequestId> own;
  for (int i = 0; i < 6; ++i) own.push_back(finish(large_, kMegabyte));
  const RequestId others = finish(small_, kMegabyte);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(fetch(large_, own[static_cast<size_t>(i)]), ErrorCode::kGone) << i;
  EXPECT_TRUE(is_kept(large_, own[2]));
  EXPECT_TRUE(is_kept(small_, others));
}

// The order of the ends decides about the age, whoever the results belong to.
TEST_F(Eviction, AgeIsTheSameForAll) {
  const RequestId old = finish(small_, 100);
  clock_.advance((limits_.future_retention_seconds - 1) * kSecond);
  const RequestId young = finish(large_, 100);
  clock_.advance(2 * kSecond);
  futures().sweep();
  EXPECT_EQ(fetch(small_, old), ErrorCode::kGone);
  EXPECT_TRUE(is_kept(large_, young));
}

class PlaneEviction : public PlaneTest {};

TEST_F(PlaneEviction, AnotherUsersUnreadResultStays) {
  config().limits.future_bytes_max = 16'000;
  boot();
  const SamplerId bobs = *try_sampler(session(bob), bob, 0, model);
  const RequestId unread = sample(bobs, bob);
  const SamplerId alices = *try_sampler(session(alice), alice, 0, model);
  const RequestId first = sample(alices, alice);
  for (int i = 0; i < 50; ++i) sample(alices, alice);
  EXPECT_EQ(wait(alice, first).error().code, ErrorCode::kGone);
  value<ProtobufResult>(bob, unread);
}

TEST_F(PlaneEviction, ASampleIsChargedForTheLargestAnswerItCanMake) {
  config().supported_models[0].max_model_len = 100'000;
  config().limits.queued_bytes_per_user_max = 20'000'000;
  boot();
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  worker().hold_answers(true);
  const auto refusal = [&](const Sample& request) {
    const auto submitted = plane().sample(alice, request, no_trace);
    return submitted.ok() ? std::string() : submitted.error().reason;
  };
  Sample request = sample_request(sampler);
  EXPECT_EQ(refusal(request), "");
  // 128 x 50,000 tokens of 8 bytes never fit.
  request.num_samples = 128;
  request.params.set_max_tokens(50'000);
  EXPECT_EQ(refusal(request), "queued_bytes_per_user_max");
  // 20,000 positions with 128 alternatives of 8 bytes neither.
  request = sample_request(sampler);
  request.prompt_tokens.assign(20'000, 1);
  request.topk_prompt_logprobs = 128;
  EXPECT_EQ(refusal(request), "queued_bytes_per_user_max");
  // Each of these fits alone, and only one beside the other.
  request = sample_request(sampler);
  request.num_samples = 20;
  request.params.set_max_tokens(80'000);
  EXPECT_EQ(refusal(request), "");
  EXPECT_EQ(refusal(request), "queued_bytes_per_user_max");
  worker().stop_holding();
  EXPECT_EQ(refusal(request), "");
  // A record takes as much again.
  request.record_stability_info = true;
  EXPECT_EQ(refusal(request), "queued_bytes_per_user_max");
}

}  // namespace
}  // namespace tuft::control
