// A control plane with fake actors, a fake clock and its own checkpoint directory, and short methods to use it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/testing/temp_dir.h"
#include "bucket/settings.h"
#include "control/control_plane.h"
#include "control/tests/fake_actor.h"
#include "control/types/checkpoint_path.h"
#include "store/memory_store.h"

namespace tuft::control {

inline CheckpointPath path_of(const std::string& text) {
  auto path = parse_checkpoint_path(text);
  EXPECT_TRUE(path.ok()) << text;
  return path.ok() ? *path : CheckpointPath{};
}

// It has more than 25 methods because each is a short form of a request or of an event that tests need.
class PlaneTest : public ::testing::Test {
 protected:
  PlaneTest();
  ~PlaneTest() override;

  // Builds the plane from config(). The worker is ready unless `started` is false. A second call restarts the server.
  void boot(bool started = true);
  // Boots, and makes a session or a model for alice.
  SessionId boot_with_session();
  RunId boot_with_run();
  std::pair<SessionId, RunId> boot_with_session_and_run();
  // From now on the state is kept in contents(), and boot() brings it back.
  void keep_state();
  store::MemoryContents& contents() { return *contents_; }
  // Returns what a server that stands by makes of the state.
  std::unique_ptr<ControlPlane> view();
  // From the next boot() on, checkpoints are in a bucket.
  void keep_in_bucket(const bucket::Settings& settings) { bucket_ = settings; }
  // The telemetry store of the next boot(); must outlive the plane.
  void keep_telemetry(telemetry_store::Store* store) { telemetry_ = store; }
  // Ends the server as kill -9 does: what it has not written is lost.
  void crash();
  void crash_and_boot();
  // The same, and the workers come back with what they hold. What was held there is finished if `finishes`.
  // `meanwhile` runs when the new server serves, and the workers are not back yet.
  void crash_and_come_back(bool finishes = true, const std::function<void()>& meanwhile = {});
  config::ServerConfig& config() { return config_; }
  ControlPlane& plane() { return *plane_; }
  void close() { plane_.reset(); }
  FakeActor& worker() { return *actors_.front(); }
  FakeActor& worker(size_t index) { return *actors_[index]; }
  // Returns the worker that holds the run's adapter, or else the last one.
  FakeActor& home(const RunId& run);
  FakeActor& other(const FakeActor& one) { return &one == &worker(0) ? worker(1) : worker(0); }
  // Calls `submit`, and the worker ends while it has what that submits. It answers again once it was started.
  template <typename Submit>
  RequestId lose_worker_with(Submit submit) {
    worker().hold_answers(true);
    const RequestId request = submit();
    worker().die();
    worker().hold_answers(false);
    return request;
  }
  FakeClock& clock() { return clock_; }
  void advance(Nanos by) {
    clock_.advance(by);
    plane_->sweep();
  }
  // A sweep notes since when something is so, and a later one how long it has been so.
  void let_last(Nanos time) {
    advance(kMillisecond);
    advance(time);
  }

  // Sweeps until the condition is true, for what other threads do, such as saves; at most 20 s. The fake clock follows
  // the real one, so that no limit passes before they could do it.
  template <typename Condition>
  void sweep_until(Condition condition) {
    const auto begin = std::chrono::steady_clock::now();
    auto last = begin;
    while (!condition() && last - begin < std::chrono::seconds(20)) {
      const auto now = std::chrono::steady_clock::now();
      advance(std::chrono::nanoseconds(now - last).count());
      last = now;
      std::this_thread::yield();
    }
    ASSERT_TRUE(condition());
  }

  // Waits until all writes until now are durable, so that they survive crash().
  Status durable();
  // Waits until files that are written behind answers exist, and unused files are removed.
  void settle();
  // Waits until the disk thread has done the user's tasks and what follows. `path`: a private checkpoint of the user.
  void await_files(const UserId& user, const std::string& path);

  SessionId session(const UserId& user);
  CreateModel create_request(const SessionId& session, int64_t seq = 0, int rank = 8);
  RequestId submit_create(const SessionId& session, const UserId& user, int64_t seq = 0, int rank = 8);
  RunId create_model(const SessionId& session, const UserId& user, int64_t seq = 0, int rank = 8);
  RunId create_model(const UserId& user) { return create_model(session(user), user); }

  Result<Submitted> try_forward_backward(const RunId& run, const UserId& user, int32_t seq,
                                         const std::string& loss = "cross_entropy");
  RequestId forward_backward(const RunId& run, const UserId& user, int32_t seq,
                             const std::string& loss = "cross_entropy");
  RequestId optim_step(const RunId& run, const UserId& user, int64_t seq);
  RequestId save(const RunId& run, const UserId& user, int64_t seq, const std::string& name = "",
                 bool overwrite = false);
  RequestId save_for_sampler(const RunId& run, const UserId& user, int64_t seq, const std::string& name,
                             std::optional<int64_t> sampler_seq = std::nullopt);
  RequestId load(const RunId& run, const UserId& user, int64_t seq, const std::string& path, bool optimizer = true);
  Result<SamplerId> try_sampler(const SessionId& session, const UserId& user, int64_t seq,
                                const std::string& base_model, const std::string& path = "");
  Sample sample_request(const SamplerId& sampler, std::optional<int64_t> seq = std::nullopt);
  RequestId sample(const SamplerId& sampler, const UserId& user, std::optional<int64_t> seq = std::nullopt);

  // Waits until the operation ends (another thread writes the files), at most 20 s.
  Result<FutureSnapshot> wait(const UserId& user, const RequestId& request);
  // Returns the present snapshot.
  Result<FutureSnapshot> peek(const UserId& user, const RequestId& request);
  bool pending(const UserId& user, const RequestId& request);
  // Waits, and returns the error of the operation; kInternal "it did not fail" if it succeeded.
  Error failure(const UserId& user, const RequestId& request);
  template <typename Value>
  Value value(const UserId& user, const RequestId& request) {
    const auto snapshot = wait(user, request);
    EXPECT_TRUE(snapshot.ok()) << snapshot.error().message;
    if (!snapshot.ok()) return {};
    EXPECT_EQ(snapshot->state, FutureSnapshot::State::kReady) << snapshot->error.message;
    const Value* found = snapshot->value == nullptr ? nullptr : std::get_if<Value>(snapshot->value.get());
    EXPECT_NE(found, nullptr);
    return found == nullptr ? Value{} : *found;
  }

  // The directory of a run's checkpoints of one kind, and the names of the entries of a directory.
  std::filesystem::path folder(const RunId& run, const char* kind = "weights");
  static std::set<std::string> names_in(const std::filesystem::path& directory);
  // Returns when the disk thread has done it.
  Status set_public(const UserId& user, const std::string& path, bool is_public);

  const UserId alice{"alice"};
  const UserId bob{"bob"};
  const std::string model = "org/fake";
  const telemetry::SpanContext no_trace;

 private:
  TempDir directory_;
  config::ServerConfig config_;
  FakeClock clock_;
  std::shared_ptr<store::MemoryContents> contents_;  // null: no persistence
  telemetry_store::Store* telemetry_ = nullptr;
  std::optional<bucket::Settings> bucket_;
  std::vector<std::unique_ptr<FakeActor>> actors_;
  std::vector<std::unique_ptr<FakeActor>> never_started_;  // of views
  std::unique_ptr<ControlPlane> plane_;
};

}  // namespace tuft::control
