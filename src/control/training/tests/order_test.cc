// Tests of the order of a run's operations, with repeated, missing and failing ones.
#include <algorithm>
#include <limits>
#include <random>

#include "control/tests/plane.h"
#include "control/training/run.h"

namespace tuft::control {
namespace {

TEST(OperationLog, ANumberThatIsNotedAsUsedIsNotWaitedFor) {
  using Log = OperationLog<RunOperation>;
  const auto operation = [](int64_t seq_id) {
    auto made = std::make_shared<RunOperation>();
    made->seq_id = seq_id;
    return made;
  };
  Log log;
  log.start_at(2);
  for (const int64_t used : {1, 2, 4}) log.note_used(used);
  EXPECT_EQ(log.next_seq_id(), 3);
  EXPECT_EQ(log.insert(operation(4)), Log::Insertion::kPassed);
  EXPECT_EQ(log.insert(operation(5)), Log::Insertion::kBuffered);
  EXPECT_EQ(log.insert(operation(3)), Log::Insertion::kQueued);
  EXPECT_EQ(log.next_seq_id(), 6);
  EXPECT_FALSE(log.has_gap());
}

class Order : public PlaneTest {};

TEST_F(Order, OperationsExecuteInSeqIdOrderWhateverOrderTheyArriveIn) {
  boot();
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const RunId run = create_model(session(alice), alice);
    std::vector<int32_t> numbers(1 + random() % 40);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i + 1);
    std::shuffle(numbers.begin(), numbers.end(), random);
    worker().clear_calls();
    worker().hold_answers(round % 2 == 0);
    std::map<int32_t, RequestId> requests;
    for (const int32_t number : numbers) {
      // Some requests come twice, and some answers come in between.
      requests[number] = forward_backward(run, alice, number, "n" + std::to_string(number));
      if (random() % 3 == 0) {
        EXPECT_EQ(forward_backward(run, alice, number, "again"), requests[number]);
      }
      if (random() % 4 == 0) worker().answer_next();
    }
    worker().answer_all();
    worker().hold_answers(false);
    std::vector<std::string> expected;
    for (size_t i = 1; i <= numbers.size(); ++i) {
      expected.push_back("forward_backward " + run.str() + " n" + std::to_string(i));
      tinker_public::ForwardBackwardOutput output;
      ASSERT_TRUE(output.ParseFromString(value<ProtobufResult>(alice, requests[static_cast<int32_t>(i)]).bytes));
      EXPECT_EQ(output.loss_fn_output_type(), "n" + std::to_string(i));
    }
    ASSERT_EQ(worker().calls_of("forward_backward"), expected);
    value<UnloadModelResult>(alice, plane().unload_model(alice, run, no_trace)->request);
  }
}

TEST_F(Order, TheLargestSeqIdIsRefused) {
  const RunId run = boot_with_run();
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  const auto refused = plane().optim_step(alice, OptimStep{.run = run, .seq_id = kLast}, no_trace);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "invalid_seq_id");
  // The largest valid one waits for the missing ones, and is given up with them.
  const RequestId early = optim_step(run, alice, kLast - 1);
  advance((config().limits.gap_timeout_seconds + 1) * kSecond);
  EXPECT_EQ(failure(alice, early).reason, "seq_id_gap");
  EXPECT_EQ(failure(alice, optim_step(run, alice, 1)).reason, "seq_id_passed");
}

TEST_F(Order, AnOperationThatTheEdgeRefusesUsesItsNumberUp) {
  const RunId run = boot_with_run();
  const Error why = invalid_argument("ttl_seconds: must be at least 1", "malformed_request");
  const RefusedOperation refused{run, OperationType::kSaveWeights, 1, why};
  const RequestId next = forward_backward(run, alice, 2);
  EXPECT_TRUE(pending(alice, next));
  EXPECT_EQ(plane().refuse(alice, refused, no_trace).message, why.message);
  value<ProtobufResult>(alice, next);
  EXPECT_EQ(plane().refuse(alice, refused, no_trace).message, why.message) << "a repeated one is refused alike";
  EXPECT_EQ(failure(alice, save(run, alice, 1, "corrected")).message, why.message);
  // A number of somebody else's run is not touched, and the answer does not tell that there is such a run.
  EXPECT_EQ(plane().refuse(bob, {run, OperationType::kSaveWeights, 3, why}, no_trace).message, why.message);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
}

TEST_F(Order, OneOperationOfARunIsAtTheWorkerAtATime) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  forward_backward(run, alice, 1);
  optim_step(run, alice, 2);
  EXPECT_EQ(worker().held(), 1U);
  worker().answer_next();
  EXPECT_EQ(worker().held(), 1U);
  EXPECT_EQ(worker().calls().back(), "optim_step " + run.str());
}

TEST_F(Order, RunsDoNotWaitForEachOther) {
  const SessionId s = boot_with_session();
  const RunId first = create_model(s, alice, 0);
  const RunId second = create_model(s, alice, 1);
  worker().hold_answers(true);
  forward_backward(first, alice, 1);
  forward_backward(second, alice, 1);
  EXPECT_EQ(worker().held(), 2U);
}

TEST_F(Order, LaterSeqIdsAreAcceptedBeforeTheFirstArrives) {
  const RunId run = boot_with_run();
  const RequestId third = forward_backward(run, alice, 3);
  const RequestId second = forward_backward(run, alice, 2);
  EXPECT_TRUE(pending(alice, third));
  EXPECT_TRUE(pending(alice, second));
  forward_backward(run, alice, 1);
  value<ProtobufResult>(alice, second);
  value<ProtobufResult>(alice, third);
}

TEST_F(Order, ARepeatedSubmissionGetsTheFirstResultRunningOrFinished) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId first = optim_step(run, alice, 1);
  EXPECT_EQ(optim_step(run, alice, 1), first);
  worker().answer_all();
  EXPECT_EQ(optim_step(run, alice, 1), first);
  EXPECT_EQ(worker().calls_of("optim_step").size(), 1U);
}

TEST_F(Order, ASeqIdOfAnotherOperationIsRefused) {
  const RunId run = boot_with_run();
  forward_backward(run, alice, 1);
  OptimStep step;
  step.run = run;
  step.seq_id = 1;
  const auto refused = plane().optim_step(alice, step, no_trace);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Order, AFailedOperationUsesItsSeqIdUp) {
  const RunId run = boot_with_run();
  worker().fail_next("forward_backward", invalid_argument("loss_fn is unknown"));
  const RequestId first = forward_backward(run, alice, 1);
  EXPECT_EQ(failure(alice, first).message, "loss_fn is unknown");
  EXPECT_EQ(value<OptimStepResult>(alice, optim_step(run, alice, 2)).metrics.at("grad_norm"), 0.5);
  EXPECT_EQ(forward_backward(run, alice, 1), first);
}

TEST_F(Order, AnInvalidParameterFailsTheFutureInItsTurn) {
  const RunId run = boot_with_run();
  OptimStep step;
  step.run = run;
  step.seq_id = 2;
  step.beta1 = 1.5;
  const RequestId bad = plane().optim_step(alice, step, no_trace)->request;
  EXPECT_TRUE(pending(alice, bad));
  forward_backward(run, alice, 1);
  const Error error = failure(alice, bad);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.reason, "invalid_adam_params");
  EXPECT_EQ(error.message, "adam_params.beta1 must be at least 0 and less than 1");
  EXPECT_TRUE(worker().calls_of("optim_step").empty());
  value<ProtobufResult>(alice, forward_backward(run, alice, 3));
}

TEST_F(Order, AGapIsGivenUpAfterTheTimeoutAndNamed) {
  const RunId run = boot_with_run();
  const RequestId third = forward_backward(run, alice, 3);
  advance(200 * kSecond);
  const RequestId fourth = forward_backward(run, alice, 4);
  EXPECT_TRUE(pending(alice, third));
  advance(101 * kSecond);
  for (const RequestId& request : {third, fourth}) {
    const Error error = failure(alice, request);
    EXPECT_EQ(error.code, ErrorCode::kFailedPrecondition);
    EXPECT_NE(error.message.find("seq_id 1 "), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("limits.gap_timeout_seconds"), std::string::npos);
  }
  EXPECT_EQ(failure(alice, forward_backward(run, alice, 2)).reason, "seq_id_passed");
  value<ProtobufResult>(alice, forward_backward(run, alice, 5));
}

TEST_F(Order, TheReorderBufferIsBoundedButAcceptsTheMissingSeqId) {
  config().limits.reorder_window = 3;
  const RunId run = boot_with_run();
  const RequestId second = forward_backward(run, alice, 2);
  forward_backward(run, alice, 3);
  forward_backward(run, alice, 4);
  const auto refused = try_forward_backward(run, alice, 5);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("limits.reorder_window"), std::string::npos);
  EXPECT_EQ(forward_backward(run, alice, 2), second);
  forward_backward(run, alice, 1);
  value<ProtobufResult>(alice, forward_backward(run, alice, 5));
}

TEST_F(Order, AnOperationWithoutSeqIdRunsAfterTheQueuedOnes) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  worker().clear_calls();
  forward_backward(run, alice, 1, "first");
  forward_backward(run, alice, 2, "second");
  forward_backward(run, alice, 0, "loose");
  forward_backward(run, alice, 3, "third");
  worker().answer_all();
  const std::string call = "forward_backward " + run.str() + " ";
  EXPECT_EQ(worker().calls(),
            (std::vector<std::string>{call + "first", call + "second", call + "loose", call + "third"}));
  EXPECT_FALSE(try_forward_backward(run, alice, -1).ok());
}

TEST_F(Order, FourThousandImmediateFailuresDoNotRecurse) {
  const RunId run = boot_with_run();
  OptimStep step;
  step.run = run;
  step.eps = -1;
  for (int64_t number = 4000; number >= 1; --number) {
    step.seq_id = number;
    ASSERT_TRUE(plane().optim_step(alice, step, no_trace).ok());
  }
  value<ProtobufResult>(alice, forward_backward(run, alice, 4001));
}

TEST_F(Order, OperationsWaitUntilTheirModelIsCreated) {
  boot();
  worker().hold_answers(true);
  const SessionId s = session(alice);
  const RequestId created = submit_create(s, alice);
  const RunId run(s.str() + ":train:0");
  const RequestId step = optim_step(run, alice, 1);
  EXPECT_EQ(worker().held(), 1U);
  worker().answer_all();
  EXPECT_EQ(value<CreateModelResult>(alice, created).run, run);
  value<OptimStepResult>(alice, step);
}

TEST_F(Order, AFailedCreationFailsWaitingOperationsAndRemovesTheRun) {
  boot();
  worker().hold_answers(true);
  const SessionId s = session(alice);
  const RequestId created = submit_create(s, alice);
  const RunId run(s.str() + ":train:0");
  const RequestId step = optim_step(run, alice, 1);
  worker().die();
  EXPECT_EQ(failure(alice, created).reason, "worker_died");
  EXPECT_NE(failure(alice, step).message.find("could not be created"), std::string::npos);
  EXPECT_EQ(plane().get_info(alice, run).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(submit_create(s, alice), created);
}

TEST_F(Order, UnloadRunsInTurnAndEndsTheRun) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId step = optim_step(run, alice, 1);
  const RequestId unload = plane().unload_model(alice, run, no_trace)->request;
  const RequestId late = optim_step(run, alice, 2);
  worker().answer_all();
  value<OptimStepResult>(alice, step);
  EXPECT_EQ(value<UnloadModelResult>(alice, unload).run, run);
  EXPECT_EQ(failure(alice, late).code, ErrorCode::kNotFound);
  EXPECT_EQ(worker().adapters(), 0U);
  EXPECT_EQ(try_forward_backward(run, alice, 3).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().unload_model(alice, run, no_trace)->request, unload);
}

TEST_F(Order, CreateModelIsCheckedAndRepeatable) {
  const SessionId s = boot_with_session();
  const RequestId first = submit_create(s, alice, 3);
  EXPECT_EQ(submit_create(s, alice, 3), first);
  EXPECT_EQ(worker().calls_of("create_adapter").size(), 1U);
  EXPECT_EQ(worker().last_create().spec().alpha(), 16);
  EXPECT_EQ(worker().last_create().spec().seed(), 7U);
  CreateModel request = create_request(s, 4);
  request.base_model = "nope";
  EXPECT_EQ(plane().create_model(alice, request, no_trace).error().code, ErrorCode::kNotFound);
  request.base_model = model;
  for (const int rank : {0, -1, 17}) {
    request.lora.rank = rank;
    const auto refused = plane().create_model(alice, request, no_trace);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("max_lora_rank"), std::string::npos);
  }
  request.lora.rank = 4;
  request.model_seq_id = -1;
  EXPECT_EQ(plane().create_model(alice, request, no_trace).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tuft::control
