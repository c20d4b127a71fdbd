// Tests of the polls for all samples of a client.
#include "control/futures/sample_feeds.h"
#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class Feeds : public PlaneTest {
 protected:
  SamplerId boot_with_sampler() {
    boot();
    session_ = session(alice);
    return *try_sampler(session_, alice, 0, model);
  }
  SampleNews poll(const SamplerId& sampler, int64_t after, int64_t client = 0) {
    std::optional<SampleNews> answer;
    const auto number = plane().watch_samples(alice, {sampler, client}, after, false,
                                              [&answer](SampleNews news) { answer = std::move(news); });
    EXPECT_TRUE(number.ok() && answer.has_value());
    return answer.value_or(SampleNews());
  }
  static std::vector<RequestId> ids(const SampleNews& news) {
    std::vector<RequestId> found;
    for (const SampleCompletion& one : news.completions) found.push_back(one.request);
    return found;
  }

  SessionId session_;
};

TEST_F(Feeds, CompletionsComeInTheirOrderUntilTheyAreConfirmed) {
  const SamplerId sampler = boot_with_sampler();
  worker().hold_answers(true);
  const RequestId first = sample(sampler, alice, 0);
  const RequestId second = sample(sampler, alice, 1);
  EXPECT_TRUE(poll(sampler, 0).completions.empty());
  EXPECT_EQ(poll(sampler, 0).cursor, 0);
  EXPECT_EQ(poll(sampler, 77).cursor, 77) << "an answer without news keeps the cursor";
  ASSERT_TRUE(worker().answer_next());
  const SampleNews one = poll(sampler, 0);
  EXPECT_EQ(ids(one), std::vector<RequestId>{first});
  EXPECT_FALSE(one.completions[0].failed);
  EXPECT_GT(one.completions[0].result_bytes, 0);
  ASSERT_TRUE(worker().answer_next());
  const SampleNews both = poll(sampler, 0);
  EXPECT_EQ(ids(both), (std::vector<RequestId>{first, second})) << "what was not confirmed comes again";
  EXPECT_GT(both.cursor, one.cursor);
  EXPECT_EQ(ids(poll(sampler, one.cursor)), std::vector<RequestId>{second});
  EXPECT_EQ(ids(poll(sampler, 0)), std::vector<RequestId>{second}) << "what was confirmed does not";
  EXPECT_TRUE(poll(sampler, both.cursor).completions.empty());
  EXPECT_TRUE(poll(sampler, 0).completions.empty());
  EXPECT_EQ(value<ProtobufResult>(alice, first).bytes.size(), static_cast<size_t>(one.completions[0].result_bytes));
}

TEST_F(Feeds, APollWaitsForTheNextCompletion) {
  const SamplerId sampler = boot_with_sampler();
  worker().hold_answers(true);
  const RequestId request = sample(sampler, alice, 0);
  int answers = 0;
  SampleNews news;
  const auto done = [&](SampleNews fresh) {
    ++answers;
    news = std::move(fresh);
  };
  const auto ended = plane().watch_samples(alice, {sampler, 0}, 5, true, done);
  EXPECT_EQ(answers, 0);
  plane().end_watch({sampler, 0}, *ended);
  EXPECT_EQ(answers, 1);
  EXPECT_TRUE(news.completions.empty());
  EXPECT_EQ(news.cursor, 5);
  plane().end_watch({sampler, 0}, *ended);
  EXPECT_EQ(answers, 1);
  ASSERT_TRUE(plane().watch_samples(alice, {sampler, 0}, 0, true, done).ok());
  EXPECT_EQ(answers, 1);
  ASSERT_TRUE(worker().answer_next());
  EXPECT_EQ(answers, 2);
  EXPECT_EQ(ids(news), std::vector<RequestId>{request});
  ASSERT_TRUE(plane().watch_samples(alice, {sampler, 0}, news.cursor, true, done).ok());
  plane().shut_down();
  EXPECT_EQ(answers, 3) << "no poll outlives the server";
}

TEST_F(Feeds, AClientLearnsOfItsOwnSamplesOnly) {
  const SamplerId sampler = boot_with_sampler();
  const RequestId original = sample(sampler, alice, 3);
  const RequestId copy = sample(sampler, alice, 2 * SampleFeeds::kSamplesOfClient + 3);
  EXPECT_EQ(ids(poll(sampler, 0)), std::vector<RequestId>{original});
  EXPECT_EQ(ids(poll(sampler, 0, 2)), std::vector<RequestId>{copy});
  EXPECT_TRUE(poll(sampler, 0, 1).completions.empty());
  const auto refused = [&](const UserId& user, const SamplerId& id) {
    return plane().watch_samples(user, {id, 0}, 0, false, [](const SampleNews&) { FAIL(); }).error();
  };
  EXPECT_EQ(refused(bob, sampler).code, ErrorCode::kNotFound);
  EXPECT_EQ(refused(bob, sampler).message, refused(bob, SamplerId("none")).message);
}

TEST_F(Feeds, FailedAndCancelledSamplesAreCompletionsToo) {
  const SamplerId sampler = boot_with_sampler();
  worker().fail_next("sample", internal_error("broken"));
  const RequestId broken = sample(sampler, alice, 0);
  worker().hold_answers(true);
  const RequestId cancelled = sample(sampler, alice, 1);
  ASSERT_TRUE(plane().cancel_future(alice, cancelled).ok());
  const SampleNews news = poll(sampler, 0);
  EXPECT_EQ(ids(news), (std::vector<RequestId>{broken, cancelled}));
  for (const SampleCompletion& one : news.completions) {
    EXPECT_TRUE(one.failed);
    EXPECT_EQ(one.result_bytes, 0);
  }
}

TEST_F(Feeds, ManyCompletionsComeInPages) {
  const SamplerId sampler = boot_with_sampler();
  constexpr auto kMost = static_cast<int>(SampleFeeds::kPageMax);
  for (int i = 0; i < kMost + 100; ++i) sample(sampler, alice, i);
  const SampleNews first = poll(sampler, 0);
  EXPECT_EQ(first.completions.size(), SampleFeeds::kPageMax);
  EXPECT_EQ(poll(sampler, first.cursor).completions.size(), 100U);
}

TEST_F(Feeds, CursorsRiseOverARestart) {
  keep_state();
  const SamplerId sampler = boot_with_sampler();
  const RequestId known = sample(sampler, alice, 0);
  const int64_t cursor = poll(sampler, 0).cursor;
  worker().hold_answers(true);
  const RequestId lost = sample(sampler, alice, 1);
  ASSERT_TRUE(durable().ok());
  clock().advance(kSecond);
  crash_and_boot();
  const SampleNews news = poll(sampler, cursor);
  std::vector<RequestId> told = ids(news);
  EXPECT_TRUE(std::find(told.begin(), told.end(), lost) != told.end()) << "what the restart ended is told";
  EXPECT_GT(news.cursor, cursor);
  EXPECT_EQ(peek(alice, lost).error().code, ErrorCode::kGone);
  EXPECT_EQ(value<ProtobufResult>(alice, known).bytes.empty(), false);
}

// The clock was set back, or another server with a clock of its own leads now.
TEST_F(Feeds, ACursorOfALaterClockHidesNothing) {
  keep_state();
  clock().advance(10'000 * kSecond);
  const SamplerId sampler = boot_with_sampler();
  value<ProtobufResult>(alice, sample(sampler, alice, 0));
  const int64_t cursor = poll(sampler, 0).cursor;
  worker().hold_answers(true);
  const RequestId lost = sample(sampler, alice, 1);
  ASSERT_TRUE(durable().ok());
  crash();
  clock().advance(-5'000 * kSecond);
  boot();
  const SampleNews news = poll(sampler, cursor);
  const std::vector<RequestId> told = ids(news);
  EXPECT_TRUE(std::find(told.begin(), told.end(), lost) != told.end()) << "what the restart ended is told";
  EXPECT_LT(news.cursor, cursor);
  EXPECT_TRUE(poll(sampler, news.cursor).completions.empty()) << "what was confirmed now does not come again";
  // A poll with the former cursor that waits gets the next completion.
  const auto promise = std::make_shared<std::promise<SampleNews>>();
  std::future<SampleNews> next = promise->get_future();
  const auto done = [promise](SampleNews fresh) { promise->set_value(std::move(fresh)); };
  ASSERT_TRUE(plane().watch_samples(alice, {sampler, 0}, cursor, true, done).ok());
  EXPECT_EQ(next.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  const RequestId request = sample(sampler, alice, 2);
  ASSERT_EQ(next.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(ids(next.get()), std::vector<RequestId>{request});
}

TEST_F(Feeds, AResultThatWasDroppedIsToldToAClientThatHadAsked) {
  config().limits.future_retention_seconds = 100;
  const SamplerId sampler = boot_with_sampler();
  const SamplerId silent = *try_sampler(session_, alice, 1, model);
  worker().hold_answers(true);
  const RequestId request = sample(sampler, alice, 0);
  sample(silent, alice, 0);
  EXPECT_TRUE(poll(sampler, 0).completions.empty());
  while (worker().answer_next()) {
  }
  advance(101 * kSecond);
  EXPECT_EQ(peek(alice, request).error().code, ErrorCode::kGone);
  const SampleNews news = poll(sampler, 0);
  EXPECT_EQ(ids(news), std::vector<RequestId>{request});
  EXPECT_TRUE(poll(sampler, news.cursor).completions.empty());
  EXPECT_TRUE(poll(silent, 0).completions.empty()) << "nobody asked, so nothing was kept";
}

// A client of an older SDK never asks.
TEST(SampleFeedLimits, WhatOutlivesItsFutureIsLimited) {
  FakeClock clock;
  SampleFeeds feeds;
  const SampleFeed feed{SamplerId("s"), 0};
  Future future;
  future.user = UserId("alice");
  future.keys.operation = OperationType::kSample;
  future.keys.sampler = feed.sampler;
  future.keys.seq_id = 0;
  const auto finish_and_forget = [&] {
    feeds.began(future);
    (void)feeds.finished(future, 0);
    feeds.forgotten(future);
  };
  finish_and_forget();
  EXPECT_TRUE(feeds.news(feed, 0).completions.empty());
  feeds.began(future);
  (void)feeds.news(feed, 0);
  for (size_t i = 0; i < SampleFeeds::kOutlivingMax + 10; ++i) finish_and_forget();
  size_t told = 0;
  for (SampleNews news = feeds.news(feed, 0); !news.completions.empty(); news = feeds.news(feed, news.cursor)) {
    told += news.completions.size();
  }
  EXPECT_EQ(told, SampleFeeds::kOutlivingMax);
  finish_and_forget();
  EXPECT_EQ(feeds.news(feed, 0).completions.size(), 1U) << "what was confirmed makes room";
}

}  // namespace
}  // namespace tuft::control
