// Who gets the trace of a session, and when there is none.
#include "control/trace_exports.h"

#include <future>
#include <string>

#include <gtest/gtest.h>

#include "control/tests/plane.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::control {
namespace {

class TraceExportTest : public PlaneTest {
 protected:
  Result<TraceExport> make(const UserId& user, const SessionId& session) {
    auto promise = std::make_shared<std::promise<Result<TraceExport>>>();
    auto future = promise->get_future();
    plane().trace_exports().make(user, session,
                                 [promise](Result<TraceExport> made) { promise->set_value(std::move(made)); });
    return future.get();
  }
};

TEST_F(TraceExportTest, NoTracingThenItSaysWhatToSet) {
  boot();
  const auto made = make(alice, session(alice));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->state, TraceExport::State::kFailed);
  EXPECT_NE(made->error.find("telemetry.enabled"), std::string::npos);
}

TEST_F(TraceExportTest, SomebodyElsesSessionIsUnknown) {
  boot();
  EXPECT_EQ(make(bob, session(alice)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(make(bob, SessionId("no-such")).error().message, make(bob, session(alice)).error().message);
}

TEST_F(TraceExportTest, TheSessionsSpansAndNoOthersUntilItExpires) {
  telemetry::WithCollector collector;
  boot();
  const SessionId mine = session(alice);
  const SessionId other = session(bob);
  const RunId run = create_model(mine, alice);
  const RunId theirs = create_model(other, bob);
  EXPECT_TRUE(wait(alice, forward_backward(run, alice, 1)).ok());
  EXPECT_TRUE(wait(bob, forward_backward(theirs, bob, 1)).ok());
  const auto made = make(alice, mine);
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made->state, TraceExport::State::kReady) << made->error;
  const auto file = plane().trace_exports().open(made->token);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->name, "session-" + mine.str() + ".json");
  EXPECT_NE(file->json->find("training_controller.run_forward_backward"), std::string::npos);
  EXPECT_NE(file->json->find(mine.str()), std::string::npos);
  EXPECT_EQ(file->json->find(other.str()), std::string::npos);
  EXPECT_FALSE(plane().trace_exports().open(made->token + "x").ok());
  advance(TraceExports::kKept);
  EXPECT_EQ(plane().trace_exports().open(made->token).error().code, ErrorCode::kNotFound);
}

TEST_F(TraceExportTest, NothingKeptThenItSaysWhy) {
  telemetry::TelemetryConfig settings;
  settings.sampler = "always_off";
  telemetry::WithCollector collector(settings);
  boot();
  const auto made = make(alice, session(alice));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->state, TraceExport::State::kFailed);
  EXPECT_NE(made->error.find("sampling"), std::string::npos);
}

}  // namespace
}  // namespace tuft::control
