// Tests of usage and audit: what is counted, for whom, and what survives a restart.
#include "control/accounts/usage.h"

#include <algorithm>
#include <future>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "control/accounts/usage_ledger.h"
#include "control/persistence/usage_records.h"
#include "control/tests/plane.h"
#include "store/memory_store.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::control {
namespace {

class UsageTest : public PlaneTest {
 protected:
  Nanos hour() const { return clock_now() - clock_now() % kHour; }
  Nanos clock_now() const { return const_cast<UsageTest*>(this)->clock().wall(); }

  std::vector<UsageEvent> events(const UserId& user) {
    return plane().usage().events(user, hour() - kHour, hour() + kHour);
  }
  int64_t count(const UserId& user, UsageKind kind) {
    int64_t sum = 0;
    for (const UsageEvent& event : events(user)) sum += event.kind == kind ? event.count : 0;
    return sum;
  }
  std::vector<std::string> actions(const UserId& user, bool checkpoints_only = false) {
    std::vector<std::string> names;
    const AuditQuery all{.until = INT64_MAX, .checkpoints_only = checkpoints_only};
    for (const AuditEvent& event : plane().usage().audit_page(user, all).events) {
      names.emplace_back(audit_action_name(event.action));
    }
    return names;
  }
};

TEST_F(UsageTest, OperationsCountTheirTokensByKindAndRun) {
  const auto [mine, run] = boot_with_session_and_run();
  EXPECT_TRUE(wait(alice, forward_backward(run, alice, 1)).ok());
  EXPECT_TRUE(wait(alice, forward_backward(run, alice, 2)).ok());
  EXPECT_TRUE(wait(alice, save(run, alice, 3, "a")).ok());
  const auto trained = events(alice);
  ASSERT_EQ(trained.size(), 2U);
  EXPECT_EQ(trained[0].run, run);
  EXPECT_EQ(trained[0].session, mine);
  EXPECT_EQ(trained[0].base_model, model);
  EXPECT_EQ(trained[0].bucket_start, hour());
  EXPECT_GT(count(alice, UsageKind::kTraining), 0);
  EXPECT_EQ(count(alice, UsageKind::kCheckpoint), 1);
  const auto sampler = try_sampler(mine, alice, 0, model);
  ASSERT_TRUE(sampler.ok());
  EXPECT_TRUE(wait(alice, sample(*sampler, alice)).ok());
  EXPECT_EQ(count(alice, UsageKind::kSamplingPrefill), 0) << "the fake worker reads no prompt";
  EXPECT_GT(count(alice, UsageKind::kSamplingOutput), 0);
  EXPECT_TRUE(events(bob).empty());
}

TEST_F(UsageTest, AFailedOperationCostsNothing) {
  const RunId run = boot_with_run();
  worker().fail_next("forward_backward", internal_error("it broke"));
  EXPECT_TRUE(wait(alice, forward_backward(run, alice, 1)).ok());
  EXPECT_EQ(count(alice, UsageKind::kTraining), 0);
}

TEST_F(UsageTest, EveryHourHasItsOwnLine) {
  boot();
  OperationKeys keys;
  keys.session = SessionId("s");
  plane().usage().add(alice, keys, UsageKind::kTraining, 5);
  const Nanos first = hour();
  advance(kHour);
  plane().usage().add(alice, keys, UsageKind::kTraining, 7);
  EXPECT_EQ(plane().usage().events(alice, first, first + kHour).at(0).count, 5);
  EXPECT_EQ(plane().usage().events(alice, first + kHour, first + 2 * kHour).at(0).count, 7);
  EXPECT_EQ(plane().usage().events(alice, first, first + 2 * kHour).size(), 2U);
}

TEST_F(UsageTest, CountsContinueAfterARestart) {
  keep_state();
  boot();
  OperationKeys keys;
  keys.session = SessionId("s");
  plane().usage().add(alice, keys, UsageKind::kTraining, 5);
  boot();
  plane().usage().add(alice, keys, UsageKind::kTraining, 2);
  plane().usage().add(bob, keys, UsageKind::kTraining, 1);
  boot();
  ASSERT_EQ(events(alice).size(), 1U);
  EXPECT_EQ(count(alice, UsageKind::kTraining), 7);
  EXPECT_EQ(count(bob, UsageKind::kTraining), 1);
}

TEST_F(UsageTest, AfterAKillCountsOfTheLastWriteAreThereOnce) {
  keep_state();
  boot();
  OperationKeys keys;
  keys.session = SessionId("s");
  plane().usage().add(alice, keys, UsageKind::kTraining, 5);
  advance(UsageLedger::kWriteInterval);
  plane().usage().audit(
      {.action = AuditAction::kCheckpointDeleted, .user = alice, .tinker_path = "tinker://r/weights/a"});
  ASSERT_TRUE(durable().ok());
  plane().usage().add(alice, keys, UsageKind::kTraining, 2);
  crash_and_boot();
  EXPECT_EQ(count(alice, UsageKind::kTraining), 5);
  EXPECT_EQ(actions(alice), std::vector<std::string>{"checkpoint_deleted"});
}

TEST_F(UsageTest, OldCountsAndEventsAreDropped) {
  config().limits.audit_retention_days = 20;
  boot();
  OperationKeys keys;
  plane().usage().add(alice, keys, UsageKind::kTraining, 5);
  plane().usage().audit({.action = AuditAction::kRunCreated, .user = alice});
  const Nanos then = hour();
  advance(19 * 24 * kHour);
  EXPECT_EQ(plane().usage().events(alice, then, then + kHour).size(), 1U);
  EXPECT_EQ(actions(alice).size(), 1U);
  advance(2 * 24 * kHour);
  EXPECT_TRUE(plane().usage().events(alice, then, then + kHour).empty());
  EXPECT_TRUE(actions(alice).empty());
}

TEST_F(UsageTest, ActionsOnAnothersCheckpointAreSeenByBothUsersOnly) {
  boot();
  plane().usage().audit({.action = AuditAction::kCheckpointLoaded,
                         .user = bob,
                         .owner = alice,
                         .tinker_path = "tinker://r/weights/a",
                         .purpose = "sampling"});
  EXPECT_EQ(actions(alice), std::vector<std::string>{"checkpoint_loaded"});
  EXPECT_EQ(actions(bob), std::vector<std::string>{"checkpoint_loaded"});
  EXPECT_TRUE(actions(UserId("carol")).empty());
}

TEST_F(UsageTest, TheLifeOfARunIsInTheAuditInOrder) {
  const RunId run = boot_with_run();
  EXPECT_TRUE(wait(alice, save(run, alice, 1, "a")).ok());
  const auto unloaded = plane().unload_model(alice, run, no_trace);
  ASSERT_TRUE(unloaded.ok());
  EXPECT_TRUE(wait(alice, unloaded->request).ok());
  EXPECT_EQ(actions(alice),
            (std::vector<std::string>{"session_created", "run_created", "checkpoint_saved", "run_unloaded"}));
  EXPECT_EQ(actions(alice, true), std::vector<std::string>{"checkpoint_saved"});
}

class LedgerTest : public ::testing::Test {
 protected:
  static config::Limits limits() {
    config::Limits limits;
    limits.audit_events_per_user_max = 4'000;
    limits.usage_lines_per_user_max = 1'000;
    return limits;
  }

  FakeClock clock;
  Persistence nothing;
  UsageLedger ledger{limits(), clock, nothing};
  const UserId user{"alice"};
};

TEST(UsageLedger, DroppedAuditEventsLeaveTheStore) {
  FakeClock clock;
  const auto contents = std::make_shared<store::MemoryContents>();
  auto persistence = Persistence::open(store::make_memory_store(contents), config::ServerConfig());
  ASSERT_TRUE(persistence.ok());
  config::Limits limits;
  UsageLedger ledger(limits, clock, **persistence);
  const auto wait_until_durable = [&] {
    std::promise<Status> durable;
    (*persistence)->when_durable([&](const Status& status) { durable.set_value(status); });
    EXPECT_TRUE(durable.get_future().get().ok());
  };
  for (int i = 0; i < limits.audit_events_per_user_max + 10; ++i) {
    ledger.audit({.action = AuditAction::kRunCreated, .user = UserId("alice")});
    if (i % 500 == 0) wait_until_durable();  // the store's queue is bounded
  }
  wait_until_durable();
  const auto kept = [&] {
    size_t count = 0;
    for (const auto& [key, value] : contents->copy()) count += key.find("::audit::") != std::string::npos;
    return count;
  };
  EXPECT_EQ(kept(), static_cast<size_t>(limits.audit_events_per_user_max));
  // A lower limit applies to what a former process left.
  const telemetry::testing::RecordedMetrics metrics;
  std::vector<AuditRecord> left;
  for (const auto& [key, value] : contents->copy()) {
    if (key.find("::audit::") != std::string::npos) left.push_back(*audit_from_json(value));
  }
  limits.audit_events_per_user_max = 100;
  UsageLedger next(limits, clock, **persistence);
  next.restore({}, std::move(left));
  wait_until_durable();
  EXPECT_EQ(kept(), 100U);
  EXPECT_EQ(metrics.counter("tuft.audit.dropped"), 9'900);
}

TEST(UsageLedger, TheRecordOfAnActCountsForTheUserWhoActedUntilItIsStored) {
  FakeClock clock;
  const auto contents = std::make_shared<store::MemoryContents>();
  auto persistence = Persistence::open(store::make_memory_store(contents), config::ServerConfig());
  ASSERT_TRUE(persistence.ok());
  UsageLedger ledger(config::Limits(), clock, **persistence);
  contents->hold(true);
  for (int i = 0; i < 2; ++i) {
    ledger.audit({.action = AuditAction::kCheckpointArchived,
                  .user = UserId("bob"),
                  .owner = UserId("alice"),
                  .purpose = std::string(Persistence::kPendingBytesMax / 4, 'x')});
  }
  EXPECT_EQ((*persistence)->available(UserId("bob")).error().reason, "store_behind");
  EXPECT_TRUE((*persistence)->available(UserId("alice")).ok());
  contents->hold(false);
}

TEST_F(LedgerTest, ASessionIsKnownWhileItsCreationIsInTheAudit) {
  const SessionId first("first");
  ledger.audit({.action = AuditAction::kSessionCreated, .user = user, .session = first});
  EXPECT_TRUE(ledger.had_session(user, first));
  EXPECT_FALSE(ledger.had_session(UserId("bob"), first));
  EXPECT_FALSE(ledger.had_session(user, SessionId("second")));
  for (int i = 0; i < limits().audit_events_per_user_max; ++i) {
    ledger.audit({.action = AuditAction::kRunCreated, .user = user, .session = first});
  }
  EXPECT_FALSE(ledger.had_session(user, first));
}

TEST_F(LedgerTest, TheAuditOfALongWindowIsInOrder) {
  const Nanos begin = clock.wall();
  constexpr int kEvents = 5'000;
  for (int i = 0; i < kEvents; ++i) {
    const bool mine = i % 3 != 0;
    ledger.audit({.action = i % 2 == 0 ? AuditAction::kCheckpointLoaded : AuditAction::kRunCreated,
                  .user = mine ? user : UserId("bob"),
                  .owner = user,
                  .run = RunId(std::to_string(i)),
                  .time = begin + i / 7 * kSecond});
  }
  const auto read = [&](int from, int until, bool checkpoints_only) {
    std::vector<int> runs;
    AuditQuery query{.from = begin + from * kSecond,
                     .until = begin + until * kSecond,
                     .checkpoints_only = checkpoints_only,
                     .limit = 700};
    do {
      const AuditPage page = ledger.audit_page(user, query);
      EXPECT_LE(page.events.size(), query.limit);
      for (const AuditEvent& event : page.events) runs.push_back(std::stoi(event.run->str()));
      query.after = page.next;
    } while (query.after);
    return runs;
  };
  std::vector<int> all(kEvents);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(read(0, kEvents, false), all);
  EXPECT_EQ(read(1, 3, false), std::vector<int>(all.begin() + 7, all.begin() + 21));
  EXPECT_EQ(read(1, 2, true), (std::vector<int>{8, 10, 12}));
  EXPECT_TRUE(read(kEvents, 2 * kEvents, false).empty());
}

TEST_F(LedgerTest, APageGoesOnAfterTheOneBefore) {
  for (int i = 0; i < 5; ++i) ledger.audit({.action = AuditAction::kRunCreated, .user = user});
  AuditQuery query{.until = INT64_MAX, .limit = 2};
  std::vector<size_t> sizes;
  do {
    const AuditPage page = ledger.audit_page(user, query);
    sizes.push_back(page.events.size());
    query.after = page.next;
  } while (query.after);
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 2, 1}));
  // What happens between two pages is on the next one.
  query.after.reset();
  query.limit = 5;
  query.after = ledger.audit_page(user, query).next;
  ASSERT_TRUE(query.after.has_value());
  ledger.audit({.action = AuditAction::kRunUnloaded, .user = user});
  const AuditPage last = ledger.audit_page(user, query);
  ASSERT_EQ(last.events.size(), 1U);
  EXPECT_EQ(last.events[0].action, AuditAction::kRunUnloaded);
  EXPECT_FALSE(last.next.has_value());
  EXPECT_TRUE(ledger.audit_page(UserId("bob"), query).events.empty());
}

TEST_F(LedgerTest, MoreLinesThanAUserMayHaveAreSummedUpWithoutLoss) {
  const telemetry::testing::RecordedMetrics metrics;
  const auto lines_max = limits().usage_lines_per_user_max;
  const auto train = [&](const UserId& who, int session) {
    OperationKeys keys;
    keys.session = SessionId("s" + std::to_string(session));
    ledger.add(who, keys, UsageKind::kTraining, 1);
  };
  for (int i = 0; i < lines_max + 100; ++i) train(user, i);
  train(user, 0);
  train(UserId("bob"), 1);
  const auto events = ledger.events(user, 0, INT64_MAX);
  EXPECT_EQ(events.size(), static_cast<size_t>(lines_max) + 1);
  std::map<SessionId, int64_t> counts;
  for (const UsageEvent& event : events) counts[event.session] += event.count;
  EXPECT_EQ(counts[SessionId()], 100);
  EXPECT_EQ(counts[SessionId("s0")], 2) << "a line that exists goes on";
  EXPECT_EQ(metrics.counter("tuft.usage.summed"), 100);
  EXPECT_EQ(ledger.events(UserId("bob"), 0, INT64_MAX)[0].session, SessionId("s1")) << "the limit is that of a user";
}

TEST_F(LedgerTest, StorageIsCountedInByteSeconds) {
  ledger.set_stored_bytes([&] { return std::unordered_map<UserId, int64_t>{{user, 1000}}; });
  for (int minute = 0; minute < 10; ++minute) {
    clock.advance(60 * kSecond);
    ledger.sweep();
  }
  const auto events = ledger.events(user, 0, INT64_MAX);
  int64_t sum = 0;
  for (const UsageEvent& event : events) {
    EXPECT_EQ(event.kind, UsageKind::kStorage);
    EXPECT_TRUE(event.session.empty());
    sum += event.count;
  }
  EXPECT_EQ(sum, 1000 * 600);
}

TEST(UsageRecords, JsonRoundTrips) {
  UsageRecord usage{7,
                    {kHour, UserId("u"), SessionId("s"), RunId("r"), "m", "p", UsageKind::kSamplingPrefillCached, 9}};
  const auto read = usage_from_json(to_json(usage));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(to_json(*read), to_json(usage));
  AuditRecord audit{3, {.action = AuditAction::kCheckpointExpired, .user = UserId("u"), .owner = UserId("o")}};
  audit.event.tinker_path = "tinker://r/weights/a";
  audit.event.time = 12;
  const auto again = audit_from_json(to_json(audit));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(to_json(*again), to_json(audit));
  EXPECT_EQ(audit_from_json("{}").error().code, ErrorCode::kDataLoss);
  EXPECT_EQ(usage_from_json(R"({"number":"x"})").error().code, ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace tuft::control
