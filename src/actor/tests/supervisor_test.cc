#include "actor/supervisor.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "actor/tests/supervisor_fixture.h"

namespace tuft::actor {
namespace {

TEST_F(SupervisorTest, AWorkerThatAnswersIsReady) {
  start_ready();
  EXPECT_TRUE(actor_->ready());
  EXPECT_EQ(actor_->incarnation(), 1U);
  EXPECT_EQ(actor_->base_model(), "tiny");
  EXPECT_NE(pid(), 0);
  EXPECT_NE(pid(), getpid());
}

TEST_F(SupervisorTest, AKilledWorkerFailsItsCallsAndIsStartedAgain) {
  start_ready();
  auto hanging = sample("hang");
  const pid_t first = pid();
  ASSERT_EQ(kill(first, SIGKILL), 0);
  const SampleResult result = get(std::move(hanging));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(result.error().reason, "worker_died");
  EXPECT_NE(result.error().message.find("signal 9"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find("tiny"), std::string::npos);
  EXPECT_EQ(ready_.pop(), 2U);
  EXPECT_EQ(actor_->incarnation(), 2U);
  EXPECT_NE(pid(), first);
  EXPECT_TRUE(get(sample("")).ok());
}

TEST_F(SupervisorTest, EachLifeHasItsOwnSocketAndTheOldOneIsRemoved) {
  start_ready();
  EXPECT_FALSE(get(sample("exit")).ok());
  EXPECT_EQ(ready_.pop(), 2U);
  size_t sockets = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_.path())) ++sockets;
  EXPECT_EQ(sockets, 1U);
}

TEST_F(SupervisorTest, TheMessageNamesTheExitCode) {
  start_ready();
  const SampleResult result = get(sample("exit"));
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("code 7"), std::string::npos) << result.error().message;
}

// Only a program of the operator sends such a signal. It has no name.
TEST_F(SupervisorTest, ARealTimeSignalOfAWorkerDoesNotEndTheServer) {
  start_ready();
  auto hanging = sample("hang");
  ASSERT_EQ(kill(pid(), SIGRTMIN), 0);
  const SampleResult result = get(std::move(hanging));
  ASSERT_FALSE(result.ok());
  const std::string signal = "signal " + std::to_string(SIGRTMIN);
  EXPECT_NE(result.error().message.find(signal), std::string::npos) << result.error().message;
}

TEST_F(SupervisorTest, TheWorkersErrorsKeepCodeAndReason) {
  start_ready();
  const SampleResult result = get(sample("gone"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kGone);
  EXPECT_EQ(result.error().reason, "sampler_removed");
  EXPECT_EQ(result.error().message, "it was there");
}

TEST_F(SupervisorTest, ACallThatAStoppingWorkerRefusesEndsWithTheWorker) {
  start_ready();
  auto refused = sample("stopping");
  EXPECT_TRUE(get(sample("")).ok());
  EXPECT_EQ(get(sample("exit")).error().reason, "worker_died");
  EXPECT_EQ(get(std::move(refused)).error().reason, "worker_died");
}

TEST_F(SupervisorTest, ACallEndsAtItsTimeLimit) {
  start_ready();
  const SampleResult result = get(sample("hang", {.trace = {}, .timeout = 50 * kMillisecond}));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kDeadlineExceeded);
}

// The worker goes on with what it was sent, so a time limit would report as failed what happens all the same.
TEST_F(SupervisorTest, AnOperationHasNoTimeLimit) {
#define TUFT_HAS_NO_TIME_LIMIT(Name, function, default_timeout) EXPECT_EQ(rpc::Name::kMethod.timeout, 0) << #Name;
  TUFT_OPERATION_METHODS(TUFT_HAS_NO_TIME_LIMIT)
#undef TUFT_HAS_NO_TIME_LIMIT
  EXPECT_EQ(rpc::ForwardBackward::kMethod.timeout, rpc::kNoTimeout);
  start_ready();
  EXPECT_EQ(get(sample("time limit"))->output_tokens(), 0);
}

TEST_F(SupervisorTest, CallsEndWithTheirWorkerEvenIfTheirConnectionDoesNotBreak) {
  start_ready();
  auto before = hang();
  const SampleResult killed = get(sample("heir"));
  ASSERT_FALSE(killed.ok());
  EXPECT_EQ(killed.error().reason, "worker_died");
  EXPECT_EQ(get(std::move(before)).error().reason, "worker_died");
  EXPECT_EQ(ready_.pop(), 2U);
  EXPECT_TRUE(get(sample("")).ok());
}

TEST_F(SupervisorTest, CallsThatStartWhileTheirWorkerDiesEndWithIt) {
  start_ready();
  const pid_t first = pid();
  std::vector<std::future<SampleResult>> calls;
  ASSERT_EQ(kill(first, SIGSTOP), 0);  // so that calls are on their way when it dies
  for (int i = 0; i < 50; ++i) calls.push_back(hang());
  ASSERT_EQ(kill(first, SIGKILL), 0);
  while (actor_->incarnation() == 1) {
    if (calls.size() < 2000) calls.push_back(hang());
    std::this_thread::yield();
  }
  EXPECT_EQ(ready_.pop(), 2U);
  for (int i = 0; i < 50; ++i) calls.push_back(hang());  // for a life that is over
  for (auto& call : calls) EXPECT_EQ(get(std::move(call)).error().reason, "worker_died");
}

TEST_F(SupervisorTest, AStoppedWorkerIsNotReadyAndItsCallsWait) {
  WorkerSpec what = spec();
  what.heartbeat = 20 * kMillisecond;
  start(std::move(what));
  ASSERT_TRUE(actor_->wait_ready(20 * kSecond).ok());
  const pid_t process = pid();
  ASSERT_EQ(kill(process, SIGSTOP), 0);
  while (actor_->ready()) std::this_thread::yield();
  auto waiting = sample("");
  EXPECT_EQ(actor_->incarnation(), 1U);
  ASSERT_EQ(kill(process, SIGCONT), 0);
  EXPECT_TRUE(get(std::move(waiting)).ok());
  while (!actor_->ready()) std::this_thread::yield();
  EXPECT_EQ(pid(), process);
}

TEST_F(SupervisorTest, TheTraceContextTravelsWithTheCall) {
  start_ready();
  const telemetry::SpanContext trace{.trace_id_high = 1, .trace_id_low = 2, .span_id = 3, .flags = 1};
  const SampleResult result = get(sample("trace", {.trace = trace, .timeout = 20 * kSecond}));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->response(), telemetry::to_traceparent(trace));
  EXPECT_EQ(get(sample("trace"))->response(), "");
}

TEST_F(SupervisorTest, MessagesMayBeLarge) {
  start_ready();
  const SampleResult result = get(sample("large"));
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->response().size(), size_t{5} << 20);
}

TEST_F(SupervisorTest, TheWorkerInheritsNoDescriptors) {
  const int leaked = open("/dev/null", O_RDONLY);  // not close-on-exec
  ASSERT_GE(leaked, 3);
  start_ready();
  const SampleResult result = get(sample("descriptors"));
  close(leaked);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->output_tokens(), 0);
}

TEST_F(SupervisorTest, CallsToAStartingWorkerAreRefused) {
  start(spec({"--never-ready"}));
  EXPECT_FALSE(actor_->ready());
  const SampleResult result = get(sample(""));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(result.error().reason, "worker_starting");
  const Status ready = actor_->wait_ready(20 * kMillisecond);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(SupervisorTest, WaitReadyNamesTheExitCodeOfAWorkerThatEndsAtOnce) {
  start(spec({"--exit-at-once"}));
  const Status ready = actor_->wait_ready(20 * kSecond);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().reason, "worker_died");
  EXPECT_NE(ready.error().message.find("code 3"), std::string::npos) << ready.error().message;
  EXPECT_EQ(ready.error().message.find("started again"), std::string::npos) << ready.error().message;
}

TEST_F(SupervisorTest, AWorkerThatIsNeverReadyIsStoppedAtTheTimeLimit) {
  WorkerSpec what = spec({"--never-ready"});
  what.start_timeout = 100 * kMillisecond;
  start(std::move(what));
  const Status ready = actor_->wait_ready(20 * kSecond);
  ASSERT_FALSE(ready.ok());
  EXPECT_NE(ready.error().message.find("not ready"), std::string::npos) << ready.error().message;
}

TEST_F(SupervisorTest, StopEndsTheProcessAndFailsItsCalls) {
  start_ready();
  const pid_t process = pid();
  auto hanging = sample("hang");
  actor_->stop();
  EXPECT_EQ(kill(process, 0), -1);
  const SampleResult result = get(std::move(hanging));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(get(sample("")).error().reason, "worker_stopped");
  EXPECT_FALSE(actor_->ready());
}

TEST_F(SupervisorTest, StopKillsAWorkerThatIgnoresSigterm) {
  WorkerSpec what = spec({"--ignore-sigterm"});
  what.stop_timeout = 50 * kMillisecond;
  start(std::move(what));
  ASSERT_TRUE(actor_->wait_ready(20 * kSecond).ok());
  const pid_t process = pid();
  actor_->stop();
  EXPECT_EQ(kill(process, 0), -1);
}

TEST_F(SupervisorTest, StartRefusesAMissingProgramAndATooLongPath) {
  WorkerSpec missing = spec();
  missing.executable = directory_ / "no-such-program";
  EXPECT_EQ(make_supervised_actor(missing)->start().error().code, ErrorCode::kNotFound);
  WorkerSpec deep = spec();
  deep.socket_directory = directory_ / std::string(120, 'd');
  EXPECT_EQ(make_supervised_actor(deep)->start().error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tuft::actor
