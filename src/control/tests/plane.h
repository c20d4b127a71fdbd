// A control plane with fake actors, a fake clock and a checkpoint directory of its own, and short words to use it.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/testing/temp_dir.h"
#include "control/control_plane.h"
#include "control/tests/fake_actor.h"
#include "store/memory_store.h"

namespace tuft::control {

class PlaneTest : public ::testing::Test {
 protected:
  PlaneTest();
  ~PlaneTest() override;

  // Builds the plane from config(); the worker is up unless `started` is false. Again: a new life of the server.
  void boot(bool started = true);
  // From now on the state is kept in contents(), and boot() brings it back.
  void keep_state();
  store::MemoryContents& contents() { return *contents_; }
  // The server ends as kill -9 ends it: what it has not written is lost.
  void crash();
  config::ServerConfig& config() { return config_; }
  ControlPlane& plane() { return *plane_; }
  void close() { plane_.reset(); }
  FakeActor& worker() { return *actors_.front(); }
  FakeActor& worker(size_t index) { return *actors_[index]; }
  FakeClock& clock() { return clock_; }
  void advance(Nanos by) {
    clock_.advance(by);
    plane_->sweep();
  }

  // What was promised until now outlives crash(): what a client's answer waits for.
  Status durable();
  // What is written behind answers is on disk, and what nobody uses any more has left it.
  void settle();
  // The disk thread has done what the user had for it, and what came of that. `path`: a checkpoint of theirs, private.
  void await_files(const UserId& user, const std::string& path);

  SessionId session(const UserId& user);
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

  // Waits for the end of it (files are written by another thread), 20 s at most.
  Result<FutureSnapshot> wait(const UserId& user, const RequestId& request);
  // What it is now.
  Result<FutureSnapshot> peek(const UserId& user, const RequestId& request);
  bool pending(const UserId& user, const RequestId& request);
  // The error that it failed with; of code kInternal "it did not fail" otherwise.
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

  const UserId alice{"alice"};
  const UserId bob{"bob"};
  const std::string model = "org/fake";
  const telemetry::SpanContext no_trace;

 private:
  // The disk thread has come to what the user asks for now.
  void pass_disk(const UserId& user, const std::string& path);

  TempDir directory_;
  config::ServerConfig config_;
  FakeClock clock_;
  std::shared_ptr<store::MemoryContents> contents_;  // null: no persistence
  std::vector<std::unique_ptr<FakeActor>> actors_;
  std::unique_ptr<ControlPlane> plane_;
};

}  // namespace tuft::control
