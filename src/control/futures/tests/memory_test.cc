// The memory of a user's operations is limited, and every operation frees its memory when it ends, wherever it is.
#include <memory>
#include <thread>
#include <vector>

#include "control/tests/plane.h"
#include "control/workers/model_backend.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::control {
namespace {

constexpr int64_t kLarge = 20'000;  // a payload; a limit of 100'000 has room for four operations with it

void add_large_stops(tinker_public::SamplingParams& params) {
  for (int i = 0; i < 20; ++i) params.mutable_stop_strs()->add_values(std::string(kLarge / 20, 'x'));
}

class Memory : public PlaneTest {
 protected:
  void boot_with(int64_t limit) {
    config().limits.queued_bytes_per_user_max = limit;
    boot();
  }
  // Returns the bytes that all operations hold.
  int64_t held() { return static_cast<int64_t>(metrics_.gauge("tuft.futures.payload.bytes").value_or(-1)); }
  int64_t refusals() { return metrics_.counter("tuft.quota.refusals", {{"limit", "queued_bytes"}}); }

  Result<Submitted> try_pass(const RunId& run, const UserId& user, int32_t seq, int64_t bytes = kLarge) {
    tinker_public::ForwardBackwardRequest request;
    request.set_model_id(run.str());
    request.set_seq_id(seq);
    request.set_loss_fn("cross_entropy");
    request.add_data()->add_model_input()->mutable_encoded_text()->set_tokens(
        std::string(static_cast<size_t>(bytes), 'x'));
    return plane().forward_backward(user, std::move(request), no_trace);
  }
  RequestId pass(const RunId& run, const UserId& user, int32_t seq, int64_t bytes = kLarge) {
    const auto submitted = try_pass(run, user, seq, bytes);
    EXPECT_TRUE(submitted.ok()) << seq << ": " << submitted.error().message;
    return submitted.ok() ? submitted->request : RequestId();
  }
  // The request is large because of its stop strings.
  Result<Submitted> try_sample(const SamplerId& sampler, const UserId& user) {
    Sample request = sample_request(sampler);
    add_large_stops(request.params);
    return plane().sample(user, request, no_trace);
  }
  void cancel(const UserId& user, const RequestId& request) {
    EXPECT_TRUE(plane().cancel_future(user, request).ok());
    EXPECT_EQ(failure(user, request).code, ErrorCode::kCancelled);
  }

 private:
  const telemetry::testing::RecordedMetrics metrics_;
};

TEST_F(Memory, WaitingOperationsOfAUserAreLimitedByNamedLimit) {
  boot_with(100'000);
  const RunId run = create_model(alice);
  const RunId bobs = create_model(bob);
  worker().hold_answers(true);
  const RequestId first = pass(run, alice, 1);
  for (int i = 2; i <= 4; ++i) pass(run, alice, i);
  EXPECT_GE(held(), 4 * kLarge);
  const auto refused = try_pass(run, alice, 5);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "queued_bytes_per_user_max");
  EXPECT_NE(refused.error().message.find("limits.queued_bytes_per_user_max"), std::string::npos);
  EXPECT_EQ(refusals(), 1);
  // A repetition does not count again, and another user is not affected.
  EXPECT_EQ(pass(run, alice, 1), first);
  pass(bobs, bob, 1);
  // An operation that has ended makes room before its future says so.
  ASSERT_TRUE(worker().answer_next());
  value<ProtobufResult>(alice, first);
  pass(run, alice, 5);
  worker().stop_holding();
  EXPECT_EQ(held(), 0);
}

TEST_F(Memory, AnOperationThatNeverFitsIsRefusedForGood) {
  boot_with(100'000);
  const auto refused = try_pass(create_model(alice), alice, 1, 200'000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPayloadTooLarge);
  EXPECT_NE(refused.error().message.find("limits.queued_bytes_per_user_max"), std::string::npos);
  EXPECT_EQ(held(), 0);
}

TEST_F(Memory, ACancelledOperationKeepsItsSeqIdButNoPayload) {
  boot_with(1'000'000);
  const RunId run = create_model(alice);
  worker().clear_calls();
  worker().hold_answers(true);
  const RequestId first = pass(run, alice, 1);
  const int64_t before = held();
  for (int i = 2; i <= 101; ++i) cancel(alice, pass(run, alice, i));
  EXPECT_LT(held() - before, 100 * 2048);
  const RequestId last = pass(run, alice, 102);
  worker().stop_holding();
  value<ProtobufResult>(alice, first);
  value<ProtobufResult>(alice, last);
  EXPECT_EQ(worker().calls_of("forward_backward").size(), 2U);
  EXPECT_EQ(held(), 0);
}

TEST_F(Memory, CancelledOperationsThatStillWaitCount) {
  boot_with(50'000);
  const RunId run = create_model(alice);
  worker().hold_answers(true);
  pass(run, alice, 1);
  int seq = 2;
  for (; seq < 1000; ++seq) {
    const auto submitted = try_pass(run, alice, seq, 1);
    if (!submitted.ok()) break;
    cancel(alice, submitted->request);
  }
  EXPECT_LT(seq, 50);
  worker().answer_next();
  pass(run, alice, seq);
}

TEST_F(Memory, ThereIsRoomForTheOperationThatOthersWaitFor) {
  boot_with(100'000);
  const RunId run = create_model(alice);
  worker().hold_answers(true);
  std::vector<RequestId> accepted;
  for (int i = 2; i <= 10; ++i) {
    const auto submitted = try_pass(run, alice, i);
    if (submitted.ok()) accepted.push_back(submitted->request);
  }
  EXPECT_EQ(accepted.size(), 2U);
  pass(run, alice, 1);
  worker().stop_holding();
  for (const RequestId& request : accepted) value<ProtobufResult>(alice, request);
}

TEST_F(Memory, OperationsThatFailInTheLogFreeTheirMemory) {
  boot_with(100'000);
  const SessionId s = session(alice);
  const RunId dies = create_model(s, alice, 0);
  worker().hold_answers(true);
  for (int i = 1; i <= 3; ++i) pass(dies, alice, i);
  worker().die();
  EXPECT_EQ(held(), 0);
  worker().start();
  worker().answer_all();
  worker().stop_holding();
  // The missing seq_ids never arrive.
  const RunId run = create_model(s, alice, 1);
  pass(run, alice, 5);
  EXPECT_GT(held(), kLarge);
  advance((config().limits.gap_timeout_seconds + 1) * kSecond);
  EXPECT_EQ(held(), 0);
}

TEST_F(Memory, OperationsOfAnEndedSessionFreeTheirMemory) {
  boot_with(200'000);
  const SessionId s = session(alice);
  const RunId run = create_model(s, alice);
  worker().hold_answers(true);
  for (int i = 1; i <= 3; ++i) pass(run, alice, i);
  pass(run, alice, 5);  // behind a gap
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  plane().sweep();
  EXPECT_LT(held(), 2 * kLarge);  // the worker has begun with the first
  worker().stop_holding();
  EXPECT_EQ(held(), 0);
}

TEST_F(Memory, SamplesCountTheSame) {
  boot_with(100'000);
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  worker().set_ready(false);
  std::vector<RequestId> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(try_sample(sampler, alice)->request);
  const auto refused = try_sample(sampler, alice);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "queued_bytes_per_user_max");
  EXPECT_EQ(refusals(), 1);
  cancel(alice, waiting[0]);
  waiting.push_back(try_sample(sampler, alice)->request);
  for (size_t i = 1; i < waiting.size(); ++i) cancel(alice, waiting[i]);
  EXPECT_LE(held(), 5 * 1024);
  // The rest is freed when the worker is ready again.
  worker().set_ready(true);
  plane().sweep();
  EXPECT_EQ(held(), 0);
  EXPECT_TRUE(worker().calls_of("sample").empty());
}

// A sparse tensor of a hundred bytes is charged with what it takes while it runs.
TEST_F(Memory, SparseTensorsCountAsDense) {
  boot_with(10'000'000);
  const RunId run = create_model(alice);
  worker().hold_answers(true);
  const auto try_sparse = [&](int32_t seq, int64_t rows, int64_t columns) {
    tinker_public::ForwardBackwardRequest request;
    request.set_model_id(run.str());
    request.set_seq_id(seq);
    request.set_loss_fn("cross_entropy");
    auto& datum = *request.add_data();
    datum.add_model_input()->mutable_encoded_text()->set_tokens("xxxx");
    auto& tensor = (*datum.mutable_loss_fn_inputs())["target_tokens"];
    tensor.set_dtype(tinker_public::DTYPE_INT64);
    tensor.mutable_sparse_csr()->set_crow_indices(std::string(16, '\0'));
    tensor.add_shape(rows);
    tensor.add_shape(columns);
    return plane().forward_backward(alice, std::move(request), no_trace);
  };
  int accepted = 0;
  Result<Submitted> last = try_sparse(1, 500, 1000);
  for (; last.ok() && accepted < 100; ++accepted) last = try_sparse(accepted + 2, 500, 1000);
  EXPECT_EQ(accepted, 2) << "4 MB each";
  EXPECT_EQ(last.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(last.error().reason, "queued_bytes_per_user_max");
  EXPECT_NE(last.error().message.find("limits.queued_bytes_per_user_max"), std::string::npos) << last.error().message;
  const auto alone = try_sparse(3, 2'000, 1000);
  EXPECT_EQ(alone.error().code, ErrorCode::kPayloadTooLarge);
  worker().stop_holding();
  // Shapes that no model can take fail as operations, so that their number is used up.
  EXPECT_NE(failure(alice, try_sparse(3, 1, 1025)->request).message.find("at most 1024 targets"), std::string::npos);
  EXPECT_EQ(failure(alice, try_sparse(4, int64_t{1} << 40, 1000)->request).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(alice, try_sparse(5, 100'000, 1000)->request).reason, "too_many_cells");
  EXPECT_EQ(failure(alice, try_sparse(6, -1, 1)->request).reason, "malformed_tensor");
}

TEST_F(Memory, ACancelledSampleThatWaitsForItsTurnFreesItsMemory) {
  boot_with(10'000'000);
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  worker().hold_answers(true);
  for (int i = 0; i < kSamplingSlots; ++i) sample(sampler, alice);
  const int64_t before = held();
  const RequestId waiting = try_sample(sampler, alice)->request;
  EXPECT_GE(held() - before, kLarge);
  cancel(alice, waiting);
  EXPECT_LE(held() - before, 1024);
  worker().stop_holding();
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(worker().calls_of("sample").size(), static_cast<size_t>(kSamplingSlots));
}

TEST_F(Memory, StreamsCountTheSame) {
  boot_with(50'000);
  worker().set_ready(false);
  int ended = 0;
  const auto start = [&] {
    GenerationRequest request;
    request.model = model;
    request.prompt_tokens = {1, 2, 3};
    request.params.set_max_tokens(4);
    add_large_stops(request.params);
    GenerationListener listener;
    listener.done = [&](const Result<tinker_public::SampleResponse>&) { ++ended; };
    return plane().generation().start(alice, std::move(request), no_trace, std::move(listener));
  };
  const auto first = start();
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(start().ok());
  const auto refused = start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "queued_bytes_per_user_max");
  plane().generation().cancel(*first);
  EXPECT_TRUE(start().ok());
  worker().set_ready(true);
  plane().sweep();
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(held(), 0);
}

TEST_F(Memory, MemoryOfUnstartedRequestsCountsTheSame) {
  boot_with(100'000);
  const RunId run = create_model(alice);
  worker().hold_answers(true);
  auto waiting = plane().generation().hold_memory(alice, 3 * kLarge);
  ASSERT_TRUE(waiting.ok());
  EXPECT_GE(held(), 3 * kLarge);
  pass(run, alice, 1);
  EXPECT_EQ(try_pass(run, alice, 2).error().reason, "queued_bytes_per_user_max");
  EXPECT_EQ(plane().generation().hold_memory(alice, kLarge).error().reason, "queued_bytes_per_user_max");
  EXPECT_EQ(plane().generation().hold_memory(alice, 200'000).error().code, ErrorCode::kPayloadTooLarge);
  EXPECT_TRUE(plane().generation().hold_memory(bob, kLarge).ok());
  waiting->shrink_to(0);
  pass(run, alice, 2);
}

TEST_F(Memory, PollsReportThatTheMemoryIsFull) {
  boot_with(50'000);
  const RunId run = create_model(alice);
  worker().hold_answers(true);
  pass(run, alice, 1);
  const RequestId waiting = pass(run, alice, 2);
  EXPECT_NE(peek(alice, waiting)->queue_state, QueueState::kPausedRateLimit);
  EXPECT_FALSE(try_pass(run, alice, 3).ok());
  EXPECT_EQ(peek(alice, waiting)->queue_state, QueueState::kPausedRateLimit);
  EXPECT_NE(peek(alice, waiting)->queue_reason.find("limits.queued_bytes_per_user_max"), std::string::npos);
  worker().answer_next();
  pass(run, alice, 3);
  EXPECT_NE(peek(alice, pass(run, alice, 4, 1))->queue_state, QueueState::kPausedRateLimit);
}

// Cancels race with turns, answers and the death of the worker.
TEST_F(Memory, NoMemoryIsLeftWhateverHappensFirst) {
  boot_with(10'000'000);
  const RunId run = create_model(alice);
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  std::vector<RequestId> requests;
  worker().hold_answers(true);
  for (int i = 1; i <= 150; ++i) requests.push_back(pass(run, alice, i));
  for (int i = 1; i <= 150; ++i) requests.push_back(try_sample(sampler, alice)->request);
  worker().hold_answers(false);
  std::thread canceller([&] {
    for (const RequestId& request : requests) EXPECT_TRUE(plane().cancel_future(alice, request).ok());
  });
  worker().answer_all();
  worker().die();
  canceller.join();
  worker().start();
  advance(kSecond);
  for (const RequestId& request : requests) EXPECT_FALSE(pending(alice, request));
  EXPECT_EQ(held(), 0);
}

}  // namespace
}  // namespace tuft::control
