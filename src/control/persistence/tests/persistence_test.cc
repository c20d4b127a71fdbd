// The queue of asynchronous writes in front of the store, and the start with stored records.
#include "control/persistence/persistence.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <stop_token>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "control/tests/users.h"
#include "store/memory_store.h"

namespace tuft::control {
namespace {

class PersistenceTest : public ::testing::Test {
 protected:
  PersistenceTest() {
    config::ModelConfig model;
    model.model_name = "org/m";
    model.model_path = "/models/m";
    config_.supported_models = {model};
    config_.authorized_users = {{"tml-secret-key", "alice"}};
    config_.persistence.mode = config::PersistenceMode::kFile;
    config_.persistence.name_space = "ns";
  }

  Result<std::unique_ptr<Persistence>> open() {
    return Persistence::open(store::make_memory_store(contents_), config_);
  }
  static SessionRecord session(const std::string& id) {
    SessionRecord record;
    record.id = SessionId(id);
    record.user = UserId("alice");
    return record;
  }
  static Status durable(Persistence& persistence) {
    auto answer = std::make_shared<std::promise<Status>>();
    auto future = answer->get_future();
    persistence.when_durable([answer](const Status& status) { answer->set_value(status); });
    return future.get();
  }
  // Lets the store have no memory for more than it has now.
  void fill_store() {
    size_t bytes = 0;
    for (const auto& entry : contents_->copy()) bytes += entry.second.size();
    contents_->set_bytes_max(bytes);
  }
  template <typename Condition>
  static void await(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(condition());
  }

  std::shared_ptr<store::MemoryContents> contents_ = std::make_shared<store::MemoryContents>();
  config::ServerConfig config_;
};

TEST_F(PersistenceTest, WithoutAStoreEveryWriteIsDurableAtOnce) {
  Persistence none;
  bool called = false;
  none.write(kAlice, {}, {}, [&] { called = true; });
  EXPECT_TRUE(called);
  EXPECT_TRUE(durable(none).ok());
  EXPECT_TRUE(none.available().ok());
  EXPECT_FALSE(none.enabled());
}

TEST_F(PersistenceTest, KeysAreThoseOfTuFT) {
  const auto persistence = open();
  ASSERT_TRUE(persistence.ok()) << persistence.error().message;
  const Persistence& p = **persistence;
  EXPECT_EQ(p.erase(SessionId("s")).key, "ns::session::s");
  EXPECT_EQ(p.erase(RunId("s:train:0")).key, "ns::training_run::s:train:0");
  EXPECT_EQ(p.erase(SamplerId("s:sample:0")).key, "ns::sampling_session::s:sample:0");
  EXPECT_EQ(p.erase(RequestId("r")).key, "ns::future::r");
  EXPECT_EQ(p.erase(CheckpointPath{RunId("r"), CheckpointKind::kTraining, "a"}).key, "ns::training_run::r::ckpt::a");
  EXPECT_EQ(p.erase(CheckpointPath{RunId("r"), CheckpointKind::kSampler, "a"}).key,
            "ns::training_run::r::sampler_ckpt::a");
  EXPECT_EQ(p.erase(SessionId("a::b")).key, "ns::session::a__SEP__b");
  EXPECT_TRUE(contents_->copy().contains("ns::config_signature"));
}

TEST_F(PersistenceTest, WrittenRecordsAreRestored) {
  {
    const auto persistence = open();
    (*persistence)->write(kAlice, {(*persistence)->put(session("a")), (*persistence)->put(session("b"))}, {});
    (*persistence)->write(kAlice, {(*persistence)->erase(SessionId("a"))}, {});
    EXPECT_TRUE(durable(**persistence).ok());
  }
  const auto persistence = open();
  ASSERT_TRUE(persistence.ok()) << persistence.error().message;
  const StoredState state = (*persistence)->take_state();
  ASSERT_EQ(state.sessions.size(), 1U);
  EXPECT_EQ(state.sessions[0].id.str(), "b");
}

TEST_F(PersistenceTest, AViewReadsTheRecordsAndWritesNothing) {
  const auto leader = open();
  (*leader)->write(kAlice, {(*leader)->put(session("a"))}, {});
  ASSERT_TRUE(durable(**leader).ok());
  const auto before = contents_->copy();
  const auto view = Persistence::open_view(store::make_memory_store(contents_), config_);
  ASSERT_TRUE(view.ok()) << view.error().message;
  EXPECT_TRUE((*view)->is_view());
  const StoredState state = (*view)->take_state();
  ASSERT_EQ(state.sessions.size(), 1U);
  bool called = false;
  (*view)->write(kAlice, {(*view)->put(session("b")), (*view)->erase(SessionId("a"))}, {}, [&] { called = true; });
  EXPECT_TRUE(called);
  EXPECT_TRUE(durable(**view).ok());
  (*view)->close(kSecond);
  EXPECT_EQ(contents_->copy(), before);
}

TEST_F(PersistenceTest, AViewOfNothingIsEmptyAndOneOfAnotherConfigurationIsRefused) {
  const auto empty = Persistence::open_view(store::make_memory_store(contents_), config_);
  ASSERT_TRUE(empty.ok()) << empty.error().message;
  EXPECT_TRUE(contents_->copy().empty());
  ASSERT_TRUE(open().ok());
  config_.supported_models[0].model_name = "org/other";
  EXPECT_FALSE(Persistence::open_view(store::make_memory_store(contents_), config_).ok());
}

// A server that is elected while it reads must not wait for a store that is slow.
TEST_F(PersistenceTest, AViewIsGivenUpWhileTheStoreIsRead) {
  ASSERT_TRUE(open().ok());
  contents_->hold(true);
  std::stop_source stop;
  auto view = std::async(std::launch::async, [&] {
    return Persistence::open_view(store::make_memory_store(contents_), config_, stop.get_token());
  });
  await([&] { return contents_->waiting() == 1; });
  stop.request_stop();
  EXPECT_EQ(view.get().error().code, ErrorCode::kUnavailable);
  contents_->hold(false);
}

TEST_F(PersistenceTest, AnOutageLosesNothingAndKeepsTheOrder) {
  const auto opened = open();
  Persistence& persistence = **opened;
  contents_->set_reachable(false);
  std::atomic<int> done = 0;
  SessionRecord record = session("s");
  for (int i = 0; i < 50; ++i) {
    record.request.project_id = std::to_string(i);
    persistence.write(kAlice, {persistence.put(record)}, {}, [&] { ++done; });
  }
  EXPECT_EQ(durable(persistence).error().reason, "store_unavailable");
  await([&] { return !persistence.available().ok(); });
  EXPECT_EQ(persistence.available().error().code, ErrorCode::kUnavailable);
  record.request.project_id = "last";
  persistence.write(kAlice, {persistence.put(record)}, {}, [&] { ++done; });
  persistence.sweep();
  EXPECT_EQ(done, 0);
  contents_->set_reachable(true);
  await([&] {
    persistence.sweep();
    return done == 51;
  });
  EXPECT_TRUE(durable(persistence).ok());
  EXPECT_TRUE(persistence.available().ok());
  EXPECT_EQ(session_from_json(contents_->copy().at("ns::session::s"))->request.project_id, "last");
}

// A Redis server that is a replica, or full, refuses writes and answers all other requests.
TEST_F(PersistenceTest, AReadOnlyStoreIsUnavailableUntilAWriteSucceeds) {
  const auto opened = open();
  Persistence& persistence = **opened;
  contents_->set_writable(false);
  std::atomic<int> done = 0;
  SessionRecord record = session("s");
  for (int i = 0; i < 3; ++i) {
    record.request.project_id = std::to_string(i);
    persistence.write(kAlice, {persistence.put(record)}, {}, [&] { ++done; });
  }
  await([&] { return !persistence.available().ok(); });
  for (int i = 0; i < 100; ++i) {
    persistence.sweep();
    ASSERT_FALSE(persistence.available().ok());
  }
  EXPECT_EQ(done, 0);
  contents_->set_writable(true);
  await([&] {
    persistence.sweep();
    return done == 3 && persistence.available().ok();
  });
  EXPECT_EQ(session_from_json(contents_->copy().at("ns::session::s"))->request.project_id, "2");
}

// A Redis at its maxmemory stayed full: what was erased waited behind the write that there was no memory for.
TEST_F(PersistenceTest, ErasuresMakeRoomInAStoreThatIsOutOfMemory) {
  const auto opened = open();
  Persistence& persistence = **opened;
  std::atomic<int> done = 0;
  const auto write = [&](store::Change change) { persistence.write(kAlice, {std::move(change)}, {}, [&] { ++done; }); };
  write(persistence.put(session("old")));
  ASSERT_TRUE(durable(persistence).ok());
  fill_store();
  write(persistence.put(session("new")));
  EXPECT_EQ(durable(persistence).error().reason, "store_unavailable");
  // What goes ahead has its turn again: the last change of each key is the newest one.
  write(persistence.erase(SessionId("next")));
  write(persistence.erase(SessionId("new")));
  write(persistence.put(session("next")));
  for (int i = 0; i < 20; ++i) persistence.sweep();
  EXPECT_EQ(done, 1);
  EXPECT_FALSE(persistence.available().ok());
  write(persistence.erase(SessionId("old")));
  await([&] {
    persistence.sweep();
    return done == 6 && persistence.available().ok();
  });
  const auto records = contents_->copy();
  EXPECT_TRUE(records.contains("ns::session::next"));
  EXPECT_FALSE(records.contains("ns::session::new"));
  EXPECT_FALSE(records.contains("ns::session::old"));
}

TEST_F(PersistenceTest, ErasuresMakeRoomInAStoreThatComesBackOutOfMemory) {
  const auto opened = open();
  Persistence& persistence = **opened;
  persistence.write(kAlice, {persistence.put(session("old"))}, {});
  ASSERT_TRUE(durable(persistence).ok());
  contents_->set_reachable(false);
  persistence.write(kAlice, {persistence.put(session("new"))}, {});
  EXPECT_EQ(durable(persistence).error().reason, "store_unavailable");
  persistence.write(kAlice, {persistence.erase(SessionId("old"))}, {});
  fill_store();
  contents_->set_reachable(true);
  await([&] {
    persistence.sweep();
    return persistence.available().ok();
  });
  EXPECT_TRUE(durable(persistence).ok());
  EXPECT_TRUE(contents_->copy().contains("ns::session::new"));
  EXPECT_FALSE(contents_->copy().contains("ns::session::old"));
}

// One user's results made the store "behind" for everybody.
TEST_F(PersistenceTest, ASlowStoreRefusesOnlyWhoHasTooMuchPending) {
  const auto opened = open();
  Persistence& persistence = **opened;
  contents_->hold(true);
  SessionRecord record = session("s");
  std::atomic<int> done = 0;
  const auto write = [&](const UserId& user, size_t parts) {
    record.request.project_id = std::string(Persistence::kPendingBytesMax / parts, 'x');
    persistence.write(user, {persistence.put(record)}, {}, [&] { ++done; });
  };
  write(kAlice, 4);
  EXPECT_TRUE(persistence.available(kAlice).ok());
  write(kAlice, 4);
  EXPECT_EQ(persistence.available(kAlice).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(persistence.available(kAlice).error().reason, "store_behind");
  EXPECT_TRUE(persistence.available(kBob).ok());
  EXPECT_TRUE(persistence.available().ok());
  // Together they are over the limit: an equal part for each.
  write(kBob, 3);
  write(kCarol, 4);
  EXPECT_FALSE(persistence.available(kAlice).ok());
  EXPECT_FALSE(persistence.available(kBob).ok());
  EXPECT_TRUE(persistence.available(kCarol).ok());
  EXPECT_TRUE(persistence.available(UserId("dave")).ok());
  EXPECT_TRUE(persistence.available().ok());
  contents_->hold(false);
  await([&] { return done == 4; });
  for (const UserId& user : {kAlice, kBob, kCarol}) EXPECT_TRUE(persistence.available(user).ok());
}

// The refusal was taken for an outage, and everybody got 503.
TEST_F(PersistenceTest, AFullQueueOfTheStoreIsNoOutage) {
  const auto opened = Persistence::open(store::make_memory_store(contents_, {.operations_max = 8}), config_);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Persistence& persistence = **opened;
  std::atomic<int> done = 0;
  SessionRecord record = session("s");
  const auto write_many = [&] {
    for (int i = 0; i < 100; ++i) {
      record.request.project_id = std::to_string(i);
      persistence.write(kAlice, {persistence.put(record)}, {}, [&] { ++done; });
    }
  };
  const auto stored = [&] { return session_from_json(contents_->copy().at("ns::session::s"))->request.project_id; };
  contents_->hold(true);
  write_many();
  EXPECT_TRUE(persistence.available(kAlice).ok());
  contents_->hold(false);
  EXPECT_TRUE(durable(persistence).ok());
  EXPECT_EQ(done, 100);
  EXPECT_EQ(stored(), "99");
  // An outage while writes wait for room.
  contents_->hold(true);
  write_many();
  contents_->set_reachable(false);
  contents_->hold(false);
  await([&] { return !persistence.available().ok(); });
  record.request.project_id = "last";
  persistence.write(kAlice, {persistence.put(record)}, {}, [&] { ++done; });
  contents_->set_reachable(true);
  await([&] {
    persistence.sweep();
    return done == 201 && persistence.available().ok();
  });
  EXPECT_EQ(stored(), "last");
}

TEST_F(PersistenceTest, ClosingDoesNotWaitForAStoreThatHangs) {
  const auto opened = open();
  Persistence& persistence = **opened;
  contents_->hold(true);
  persistence.write(kAlice, {persistence.put(session("s"))}, {});
  const auto began = std::chrono::steady_clock::now();
  persistence.close(20 * kMillisecond);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  contents_->hold(false);
}

TEST_F(PersistenceTest, ABarrierWaitsForEarlierWrites) {
  const auto opened = open();
  Persistence& persistence = **opened;
  contents_->hold(true);
  persistence.write(kAlice, {persistence.put(session("s"))}, {});
  std::atomic<bool> reached = false;
  persistence.when_durable([&](const Status& status) { reached = status.ok(); });
  EXPECT_FALSE(reached);
  contents_->hold(false);
  await([&] { return reached.load(); });
  EXPECT_TRUE(contents_->copy().contains("ns::session::s"));
}

TEST_F(PersistenceTest, AWriteThatCanNeverSucceedDoesNotBlockOthers) {
  const auto opened = open();
  Persistence& persistence = **opened;
  std::atomic<bool> done = false;
  persistence.write(kAlice, {persistence.put(session(std::string(store::kKeyBytesMax, 'x')))}, {},
                    [&] { done = true; });
  persistence.sweep();
  EXPECT_TRUE(done);
  EXPECT_TRUE(durable(persistence).ok());
  EXPECT_TRUE(persistence.available().ok());
}

TEST_F(PersistenceTest, AnUnreachableStoreIsAnErrorAndNotAnEmptyState) {
  contents_->set_reachable(false);
  const auto persistence = open();
  ASSERT_FALSE(persistence.ok());
  EXPECT_EQ(persistence.error().reason, "store_unreachable");
}

TEST_F(PersistenceTest, AnUnreadableRecordIsSkippedAndNotDeleted) {
  { ASSERT_TRUE(open().ok()); }
  contents_->put("ns::training_run::r", "{ torn");
  contents_->put("ns::training_run::r::ckpt::a", "{}");  // written for TuFT's tools; not read
  const auto persistence = open();
  ASSERT_TRUE(persistence.ok());
  EXPECT_EQ((*persistence)->take_state().unreadable, 1U);
  EXPECT_EQ(contents_->copy().at("ns::training_run::r"), "{ torn");
}

TEST_F(PersistenceTest, StateOfAnotherConfigurationIsRefusedNamingTheField) {
  { ASSERT_TRUE(open().ok()); }
  config_.supported_models[0].lora_alpha_ratio = 7;
  auto refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  for (const char* word : {"supported_models[org/m].lora_alpha_ratio", "7", "2", "tuft clear persistence"}) {
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
  config_.supported_models[0].model_name = "org/other";
  EXPECT_NE(open().error().message.find("org/m"), std::string::npos);
}

TEST_F(PersistenceTest, FieldsThatAreNotCheckedMayChange) {
  { ASSERT_TRUE(open().ok()); }
  config_.supported_models[0].max_lora_rank = 3;
  config_.supported_models[0].sampling = false;
  config_.supported_models.push_back(config_.supported_models[0]);
  config_.supported_models[1].model_name = "org/new";
  config_.authorized_users.clear();
  config_.model_owner = "someone";
  EXPECT_TRUE(open().ok());
  config_.persistence.check_fields.emplace_back("MODEL_OWNER");
  config_.model_owner = "another";
  EXPECT_NE(open().error().message.find("model_owner"), std::string::npos);
}

TEST_F(PersistenceTest, TheSignatureIsOpenToNewFieldsAndHoldsNoKeys) {
  { ASSERT_TRUE(open().ok()); }
  const std::string text = contents_->copy().at("ns::config_signature");
  EXPECT_EQ(text.find("tml-secret-key"), std::string::npos);
  auto json = nlohmann::json::parse(text);
  json["config_data"]["supported_models"]["org/m"]["of_a_later_version"] = 1;
  json["config_data"]["supported_models"]["org/m"].erase("lora_alpha_ratio");
  contents_->put("ns::config_signature", json.dump());
  EXPECT_TRUE(open().ok());
  json["tuft"]["version"] = 99;
  contents_->put("ns::config_signature", json.dump());
  EXPECT_NE(open().error().message.find("version 99"), std::string::npos);
}

TEST_F(PersistenceTest, StateOfOtherProgramsIsRefused) {
  contents_->put("ns::session::x", "{}");
  EXPECT_NE(open().error().message.find("no config_signature"), std::string::npos);
  contents_->put("ns::config_signature", R"({"config_data": {}, "created_at": "x", "namespace": "ns"})");
  EXPECT_NE(open().error().message.find("TuFT's own server"), std::string::npos);
}

TEST_F(PersistenceTest, ClearRemovesOnlyTheNamespace) {
  { ASSERT_TRUE(open().ok()); }
  contents_->put("ns::session::x", "{}");
  contents_->put("ns2::session::x", "{}");
  const auto memory = store::make_memory_store(contents_);
  const auto cleared = Persistence::clear(*memory, "ns");
  ASSERT_TRUE(cleared.ok());
  EXPECT_EQ(*cleared, 2U);
  EXPECT_EQ(contents_->copy().size(), 1U);
}

}  // namespace
}  // namespace tuft::control
