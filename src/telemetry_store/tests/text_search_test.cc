// What a search for text finds, and what crafted records make it cost.
#include <algorithm>
#include <atomic>
#include <ctime>
#include <string>

#include <gmock/gmock.h>

#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using TextSearch = StoreOnDiskTest;

TEST_F(TextSearch, FindsRecordsBesideThoseThatOnlyLookLikeIt) {
  for (int i = 0; i < 40; ++i) {
    BuiltLog log{.time = now() + i, .body = "body " + std::to_string(i)};
    if (i % 8 == 3) log.attributes = {{"needle", "x"}};  // a key is not searched
    if (i % 8 == 5) log.attributes = {{"key", "a NEEdle"}};
    if (i == 17) log.body = "needle in the body";
    // Ends where the next record begins.
    if (i == 20) log.body = "nee";
    add({log}, {.owner = "alice"});
  }
  const std::vector<std::string> expected = {"body 37", "body 29", "body 21", "needle in the body",
                                             "body 13", "body 5"};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(bodies(kAlice, {.filter = {.text = "Needle"}, .page = {.limit = 100}}), expected);
    EXPECT_THAT(bodies(kBob, {.filter = {.text = "needle"}, .page = {.limit = 100}}), ElementsAre());
    reopen();
  }
}

// The searches of a text whose every beginning is in the record, and of one that is as long as usual.
TEST_F(TextSearch, CraftedRecordsCostHardlyMore) {
  const auto cpu = [](const std::string& content, const std::string& text) {
    const auto once = [&] {
      const clock_t begin = std::clock();
      EXPECT_FALSE(internal::contains_without_case(content, text));
      return std::clock() - begin;
    };
    return std::max<clock_t>(std::min({once(), once(), once()}), 1);
  };
  const std::string content(size_t{4} << 20, 'a');
  const clock_t usual = cpu(content, "ab");
  for (const size_t length : {250, 1'000}) {
    const std::string half(length / 2, 'a');
    EXPECT_LT(cpu(content, half + half + "b"), 25 * usual);
    EXPECT_LT(cpu(content, half + "b" + half), 25 * usual);
    EXPECT_LT(cpu(content, "b" + half + half), 25 * usual);
  }
}

// Counts the looks; after `at_most` of them the time of every query is over.
class CountingClock final : public Clock {
 public:
  Nanos monotonic() const override { return ++looks <= at_most ? 0 : 3600 * kSecond; }
  Nanos wall() const override { return 1'700'000'000 * kSecond; }

  mutable std::atomic<int> looks = 0;
  std::atomic<int> at_most = 1'000'000;
};

TEST(TextSearchDeadline, IsCheckedForEachMebibyteAndSaysHowToNarrowTheQuery) {
  CountingClock clock;
  const auto store = Store::open({}, clock);
  constexpr int kRecords = 12;
  for (int i = 0; i < kRecords; ++i) {
    // The key makes the record a candidate, though no value of it has the text.
    const BuiltLog log{.time = clock.wall(), .body = std::string(600'000, 'a'), .attributes = {{"needle", "x"}}};
    store->add(RecordType::kLogs, build_logs({log}), {});
    ASSERT_TRUE(store->settle(10 * kSecond));
  }
  clock.looks = 0;
  const LogQuery query{.filter = {.text = "needle"}};
  const auto all = store->logs({.all = true}, query);
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->logs.empty());
  EXPECT_GE(clock.looks, kRecords) << "no two of them are within a MiB";

  clock.looks = 0;
  clock.at_most = 4;
  const auto stopped = store->logs({.all = true}, query);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(stopped.error().reason, "query_too_large");
  EXPECT_THAT(stopped.error().message, HasSubstr("ask for a shorter time"));
  EXPECT_EQ(clock.looks, 5) << "the query ends where its time does";
}

}  // namespace
}  // namespace tuft::telemetry_store
