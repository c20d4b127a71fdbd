// What sessions may take: of memory, and of the store.
#include <string>
#include <utility>
#include <vector>

#include "control/sessions/sessions.h"
#include "control/tests/plane.h"
#include "telemetry/testing/recorded_metrics.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::control {
namespace {

class SessionMemory : public PlaneTest {
 protected:
  Error refusal(const UserId& user, const CreateSession& request) {
    const auto created = plane().create_session(user, request);
    return created.ok() ? internal_error("it was accepted") : created.error();
  }
  // Creates sessions until one is refused, at most `most`. Returns those that were created.
  std::vector<SessionId> fill(const UserId& user, const CreateSession& request, int most) {
    std::vector<SessionId> sessions;
    for (int i = 0; i < most; ++i) {
      auto created = plane().create_session(user, request);
      if (!created.ok()) break;
      sessions.push_back(*created);
    }
    return sessions;
  }
  static CreateSession with_metadata(size_t bytes) {
    CreateSession request;
    request.user_metadata["note"] = std::string(bytes, 'x');
    return request;
  }
};

TEST_F(SessionMemory, EachFieldIsLimitedAndNamed) {
  boot();
  const std::string mebibyte(1 << 20, 'x');
  const auto expect_named = [&](const std::string& field, const CreateSession& request) {
    const Error error = refusal(alice, request);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << field;
    EXPECT_NE(error.message.find(field), std::string::npos) << error.message;
    EXPECT_LT(error.message.size(), 200U) << field;
  };
  expect_named("project_id", {.project_id = mebibyte});
  expect_named("sdk_version", {.sdk_version = mebibyte});
  expect_named("X-Idempotency-Key", {.idempotency_key = mebibyte});
  expect_named("X-Idempotency-Key", {.idempotency_key = "\xe9"});  // a record cannot hold it
  expect_named("tags", {.tags = {mebibyte}});
  expect_named("display_name", {.display_name = mebibyte});
  expect_named("tags", {.tags = std::vector<std::string>(65)});  // empty ones
  expect_named("user_metadata", with_metadata(70'000));
  CreateSession many;
  for (int i = 0; i < 513; ++i) many.user_metadata[std::to_string(i)] = "";
  expect_named("user_metadata", many);

  CreateSession largest = with_metadata((64 << 10) - 4);
  largest.tags.assign(64, std::string(256, 't'));
  largest.sdk_version = std::string(128, 'v');
  largest.project_id = std::string(256, 'p');
  const SessionId session = *plane().create_session(alice, largest);
  EXPECT_EQ(plane().catalog().set_project(alice, session, mebibyte).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(plane().catalog().set_project(alice, session, "p").ok());
  CreateModel run = create_request(session);
  run.user_metadata = many.user_metadata;
  EXPECT_EQ(plane().create_model(alice, run, no_trace).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SessionMemory, EndedSessionsOfAUserAreLimitedInBytesAndNumber) {
  EndedSessions ended(2'000);
  const auto end = [&](const UserId& user, int number, size_t bytes) {
    ended.add({.id = SessionId(user.str() + std::to_string(number)),
               .user = user,
               .created_at = std::to_string(number),
               .user_metadata = {{"note", std::string(bytes, 'x')}}});
  };
  end(bob, 0, 10);
  for (int i = 0; i < 200; ++i) end(alice, i, 64 << 10);
  const size_t large = ended.of_user(alice).size();
  EXPECT_LT(large * (64 << 10), static_cast<size_t>(EndedSessions::kBytesPerUserMax));
  EXPECT_GT(large, 60U);
  EXPECT_EQ(ended.find(SessionId("alice0")), nullptr) << "the first to end is forgotten first";
  EXPECT_EQ(ended.of_user(alice).begin()->first, "199") << "the newest comes first";
  EXPECT_EQ(ended.find(alice, SessionId("bob0")), nullptr);
  EXPECT_NE(ended.find(bob, SessionId("bob0")), nullptr);
  for (int i = 200; i < 10'000; ++i) end(alice, i, 0);
  EXPECT_EQ(ended.of_user(alice).size(), 2'000U);
  EXPECT_EQ(ended.of_user(bob).size(), 1U);
}

TEST_F(SessionMemory, TheSessionsOfAUserAreLimitedInBytesAndNumber) {
  const telemetry::testing::RecordedMetrics metrics;
  config().limits.session_bytes_per_user_max = 256 << 10;
  boot();
  CreateSession tagged;
  tagged.tags.resize(64);  // empty tags take memory, too
  const std::vector<SessionId> sessions = fill(alice, tagged, 1000);
  EXPECT_EQ(sessions.size(), (256U << 10) / (2048 + 64 * 64));
  const Error error = refusal(alice, tagged);
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.reason, "session_bytes_per_user_max");
  EXPECT_NE(error.message.find("limits.session_bytes_per_user_max"), std::string::npos) << error.message;
  EXPECT_EQ(metrics.counter("tuft.quota.refusals", {{"limit", "session_bytes"}}), 2);
  EXPECT_TRUE(plane().create_session(bob, tagged).ok());
  ASSERT_TRUE(plane().end_session(alice, sessions.front(), {}).ok());
  EXPECT_TRUE(plane().create_session(alice, tagged).ok());
}

TEST_F(SessionMemory, ASessionThatEndsTakesNoRoomWhileItsRunIsSaved) {
  config().limits.session_bytes_per_user_max = 256 << 10;
  boot();
  const CreateSession request = with_metadata(60'000);
  const std::vector<SessionId> sessions = fill(alice, request, 1000);
  const RunId run = create_model(sessions.front(), alice);
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().hold_answers(true);
  ASSERT_TRUE(plane().end_session(alice, sessions.front(), {}).ok());
  EXPECT_TRUE(plane().create_session(alice, request).ok());
  EXPECT_EQ(refusal(alice, request).reason, "session_bytes_per_user_max");
  worker().stop_holding();
}

TEST_F(SessionMemory, RestoredSessionsCount) {
  config().limits.session_bytes_per_user_max = 256 << 10;
  keep_state();
  boot();
  const CreateSession request = with_metadata(60'000);
  const size_t count = fill(alice, request, 1000).size();
  ASSERT_EQ(count, 4U);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(refusal(alice, request).reason, "session_bytes_per_user_max");
}

// Nobody waits for more than this of another user's sessions when the store is slow.
TEST_F(SessionMemory, RecordsThatWaitForTheStoreAreLimitedForEachUser) {
  config().limits.session_bytes_per_user_max = 1 << 30;
  keep_state();
  boot();
  contents().hold(true);
  const CreateSession request = with_metadata(60'000);
  const size_t accepted = fill(alice, request, 1000).size();
  EXPECT_GT(accepted, 20U);
  EXPECT_LE(accepted * 60'000, static_cast<size_t>(Sessions::kUnwrittenBytesMax));
  const Error error = refusal(alice, request);
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.reason, "session_records_unwritten");
  EXPECT_TRUE(plane().create_session(bob, request).ok());
  contents().hold(false);
  ASSERT_TRUE(durable().ok());
  EXPECT_TRUE(plane().create_session(alice, request).ok());
}

TEST_F(SessionMemory, OnlyAPrintableBeginningOfTheSdkVersionIsLogged) {
  telemetry::WithCollector collector;
  boot();
  ASSERT_TRUE(plane().create_session(alice, {.sdk_version = "1.2\n\x1b[2J\xff" + std::string(100, 'v')}).ok());
  ASSERT_TRUE(collector.flush());
  const auto log = collector.log("session.created");
  ASSERT_TRUE(log.has_value());
  EXPECT_EQ(telemetry::testing::text_of(log->attributes, "tuft.sdk_version"), "1.2??[2J?" + std::string(55, 'v'));
}

}  // namespace
}  // namespace tuft::control
