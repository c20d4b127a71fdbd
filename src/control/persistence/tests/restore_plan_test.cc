// Tests of the plan that says what a restart restores.
#include "control/persistence/restore_plan.h"

#include <functional>
#include <map>

#include <gtest/gtest.h>

namespace tuft::control {
namespace {

using State = FutureSnapshot::State;

class RestorePlanTest : public ::testing::Test {
 protected:
  RestorePlanTest() {
    run_.id = RunId("s:train:0");
    run_.user = UserId("alice");
    run_.next_seq_id = 1;
  }

  // Operations get their numbers and seq_ids in the order of the calls.
  FutureRecord& add(OperationType type, State state) {
    FutureRecord record;
    record.request = RequestId("r" + std::to_string(++number_));
    record.user = UserId("alice");
    record.number = number_;
    record.keys.operation = type;
    record.keys.run = run_.id;
    if (type != OperationType::kCreateModel) {
      record.keys.seq_id = ++seq_;
      record.key = run_.id.str() + '#' + std::to_string(seq_);
    }
    record.state = state;
    if (state == State::kReady) record.value = std::make_shared<const FutureValue>(CreateModelResult{run_.id});
    futures_.push_back(record);
    if (state != State::kPending && record.keys.seq_id) run_.next_seq_id = *record.keys.seq_id + 1;
    return futures_.back();
  }

  CheckpointPtr put_checkpoint(const std::string& name, const FutureRecord& save,
                               CheckpointKind kind = CheckpointKind::kTraining) {
    Checkpoint checkpoint;
    checkpoint.path = {run_.id, kind, name};
    checkpoint.future_number = save.number;
    checkpoint.seq_id = save.keys.seq_id;
    checkpoint.size_bytes = 7;
    CheckpointPtr made = std::make_shared<const Checkpoint>(checkpoint);
    on_disk_[checkpoint.path.str()] = made;
    if (kind == CheckpointKind::kTraining) newest_ = made;
    return made;
  }
  void save(const std::string& name) {
    const FutureRecord future = add(OperationType::kSaveWeights, State::kReady);
    const CheckpointPtr made = put_checkpoint(name, future);
    run_.restore_point = CheckpointRef{made->path.str(), made->future_number};
    run_.restore_with_optimizer = true;
    run_.restore_number = future.number;
    run_.restore_seq_id = future.keys.seq_id;
    run_.weights_changed = run_.gradient_pending = false;
  }
  void train() {
    add(OperationType::kForwardBackward, State::kReady);
    add(OperationType::kOptimStep, State::kReady);
    run_.weights_changed = true;
  }

  RestorePlan plan(const std::function<bool(const RunRecord&)>& may_be_held = {}) {
    StoredState state;
    state.runs = {run_};
    state.futures = futures_;
    return plan_restore(
        std::move(state),
        {[this](const std::string& path) {
           const auto found = on_disk_.find(path);
           return found == on_disk_.end() ? nullptr : found->second;
         },
         [this](const RunId&) { return newest_; }, [this](const RunId&, uint64_t number) { return saved_by(number); }},
        may_be_held);
  }
  CheckpointPtr saved_by(uint64_t number) const {
    for (const auto& [path, checkpoint] : on_disk_) {
      if (checkpoint->future_number == number) return checkpoint;
    }
    return nullptr;
  }
  // Returns what the store holds after the start that made `plan`.
  void keep(const RestorePlan& plan) {
    run_ = plan.runs.at(0).record;
    for (const FutureRecord& settled : plan.settled) {
      for (FutureRecord& future : futures_) {
        if (future.request == settled.request) future = settled;
      }
    }
  }
  static bool is_gone(const RestorePlan& plan, const std::string& request) {
    for (const FutureRecord& future : plan.gone) {
      if (future.request.str() == request) return true;
    }
    return false;
  }

  RunRecord run_;
  std::vector<FutureRecord> futures_;
  std::map<std::string, CheckpointPtr> on_disk_;
  CheckpointPtr newest_;
  uint64_t number_ = 0;
  int64_t seq_ = 0;
};

TEST_F(RestorePlanTest, WithoutLaterOperationsNothingIsLost) {
  add(OperationType::kCreateModel, State::kReady);
  train();
  save("a");
  const RestorePlan plan = this->plan();
  ASSERT_EQ(plan.runs.size(), 1U);
  EXPECT_FALSE(plan.runs[0].lost);
  EXPECT_EQ(plan.runs[0].checkpoint->path.name, "a");
  EXPECT_EQ(plan.runs[0].record.next_seq_id, 4);
  EXPECT_EQ(plan.futures.size(), 4U);
  EXPECT_TRUE(plan.gone.empty());
  EXPECT_EQ(plan.last_future_number, 4U);
}

TEST_F(RestorePlanTest, OperationsAfterTheCheckpointAreGoneAndTheirSeqIdsAreFree) {
  add(OperationType::kCreateModel, State::kReady);        // r1
  train();                                                // r2, r3: seq 1, 2
  save("a");                                              // r4: seq 3
  train();                                                // r5, r6: seq 4, 5
  add(OperationType::kForwardBackward, State::kPending);  // r7: seq 6
  const RestorePlan plan = this->plan();
  EXPECT_TRUE(plan.runs[0].lost);
  EXPECT_EQ(plan.runs[0].record.next_seq_id, 4);
  EXPECT_EQ(plan.futures.size(), 4U);
  ASSERT_EQ(plan.gone.size(), 3U);
  for (const char* request : {"r5", "r6", "r7"}) EXPECT_TRUE(is_gone(plan, request)) << request;
  EXPECT_EQ(plan.gone[0].error.code, ErrorCode::kGone);
  EXPECT_NE(plan.gone[0].error.message.find("/weights/a (seq_id 3)"), std::string::npos) << plan.gone[0].error.message;
}

TEST_F(RestorePlanTest, ACheckpointThatIsNotThereIsPassedOverForAnOlderOne) {
  add(OperationType::kCreateModel, State::kReady);
  save("a");
  const CheckpointPtr older = newest_;
  train();
  save("b");
  on_disk_.erase(newest_->path.str());
  newest_ = older;
  const RestorePlan plan = this->plan();
  EXPECT_TRUE(plan.runs[0].lost);
  EXPECT_EQ(plan.runs[0].checkpoint, older);
  EXPECT_EQ(plan.runs[0].record.restore_point->path, older->path.str());
  EXPECT_EQ(plan.runs[0].record.next_seq_id, 2);
}

TEST_F(RestorePlanTest, TheOnlyCheckpointStaysTheRestorePointUntilItIsThereAgain) {
  add(OperationType::kCreateModel, State::kReady);        // r1
  train();                                                // r2, r3: seq 1, 2
  save("a");                                              // r4: seq 3
  add(OperationType::kForwardBackward, State::kPending);  // r5: seq 4
  const CheckpointPtr only = newest_;
  const std::string path = only->path.str();
  on_disk_.clear();
  newest_ = nullptr;
  for (int start = 0; start < 2; ++start) {
    const RestorePlan plan = this->plan();
    EXPECT_EQ(plan.runs[0].checkpoint, nullptr);
    ASSERT_TRUE(plan.runs[0].record.restore_point);
    EXPECT_EQ(plan.runs[0].record.restore_point->path, path);
    EXPECT_EQ(plan.runs[0].record.next_seq_id, 4);
    ASSERT_EQ(plan.gone.size(), 1U);
    EXPECT_NE(plan.gone[0].error.message.find("is gone or cannot be read"), std::string::npos)
        << plan.gone[0].error.message;
    keep(plan);
  }
  newest_ = on_disk_[path] = only;
  EXPECT_EQ(plan().runs[0].checkpoint, only);
}

TEST_F(RestorePlanTest, TheOrderOfSeqIdsCountsAndNotTheOrderOfArrival) {
  add(OperationType::kCreateModel, State::kReady);
  FutureRecord& late = add(OperationType::kForwardBackward, State::kReady);
  const std::string request = late.request.str();
  save("a");
  futures_[1].number = 100;  // it arrived after the save, and ran before it
  const RestorePlan plan = this->plan();
  EXPECT_FALSE(plan.runs[0].lost);
  EXPECT_FALSE(is_gone(plan, request));
}

TEST_F(RestorePlanTest, WithoutACheckpointTheRunStartsAgainAndItsCreationRemains) {
  add(OperationType::kCreateModel, State::kReady);
  train();
  const RestorePlan plan = this->plan();
  EXPECT_TRUE(plan.runs[0].lost);
  EXPECT_EQ(plan.runs[0].checkpoint, nullptr);
  EXPECT_EQ(plan.runs[0].record.next_seq_id, 1);
  EXPECT_EQ(plan.futures.size(), 1U);
  EXPECT_EQ(plan.gone.size(), 2U);
}

TEST_F(RestorePlanTest, ACheckpointThatTheRecordDoesNotKnowYetCounts) {
  add(OperationType::kCreateModel, State::kReady);
  save("a");
  train();
  const FutureRecord pending = add(OperationType::kSaveWeights, State::kPending);
  put_checkpoint("b", pending);
  const RestorePlan plan = this->plan();
  EXPECT_EQ(plan.runs[0].checkpoint->path.name, "b");
  EXPECT_FALSE(plan.runs[0].lost);
  EXPECT_EQ(plan.runs[0].record.next_seq_id, *pending.keys.seq_id + 1);
  EXPECT_TRUE(plan.gone.empty());
  ASSERT_EQ(plan.futures.size(), 5U);
  EXPECT_EQ(plan.futures.back().state, State::kReady);
  EXPECT_EQ(std::get<SaveWeightsResult>(*plan.futures.back().value).path, newest_->path.str());
}

TEST_F(RestorePlanTest, ASaveOfAnyKindWhoseFileIsThereHasSucceeded) {
  add(OperationType::kCreateModel, State::kReady);
  const FutureRecord sampler = add(OperationType::kSaveWeightsForSampler, State::kPending);
  const FutureRecord external = add(OperationType::kSaveWeightsExternal, State::kPending);
  const FutureRecord older = add(OperationType::kSaveWeights, State::kPending);
  const FutureRecord newer = add(OperationType::kSaveWeights, State::kPending);
  add(OperationType::kSaveWeightsForSampler, State::kPending);  // unnamed, or it was not written
  put_checkpoint("s", sampler, CheckpointKind::kSampler);
  put_checkpoint("e", external, CheckpointKind::kExternal);
  put_checkpoint("older", older);
  put_checkpoint("newer", newer);
  const RestorePlan plan = this->plan();
  ASSERT_EQ(plan.futures.size(), 5U);
  EXPECT_EQ(std::get<SaveWeightsForSamplerResult>(*plan.futures[1].value).path, "tinker://s:train:0/sampler_weights/s");
  const auto& weights = std::get<SaveWeightsExternalResult>(*plan.futures[2].value);
  EXPECT_EQ(weights.path, "tinker://s:train:0/external_weights/e");
  EXPECT_EQ(weights.size_bytes, 7);
  EXPECT_EQ(std::get<SaveWeightsResult>(*plan.futures[3].value).path, "tinker://s:train:0/weights/older");
  EXPECT_EQ(std::get<SaveWeightsResult>(*plan.futures[4].value).path, "tinker://s:train:0/weights/newer");
  ASSERT_EQ(plan.gone.size(), 1U);
  EXPECT_EQ(plan.settled.size(), 5U);
}

TEST_F(RestorePlanTest, ARunThatMayBeHeldGoesOnAfterASaveWhoseResultWasNotRecorded) {
  add(OperationType::kCreateModel, State::kReady);
  train();                                                                                  // seq 1, 2
  const FutureRecord external = add(OperationType::kSaveWeightsExternal, State::kPending);  // 3
  put_checkpoint("e", external, CheckpointKind::kExternal);
  const auto held = [](const RunRecord&) { return true; };
  EXPECT_EQ(plan(held).runs[0].record.next_seq_id, 4);
  EXPECT_TRUE(plan(held).runs[0].unfinished.empty());
  EXPECT_EQ(plan(held).futures.back().key, "s:train:0#3") << "a repetition finds it";
  add(OperationType::kForwardBackward, State::kPending);  // 4
  EXPECT_EQ(plan(held).runs[0].record.next_seq_id, 4);
  EXPECT_EQ(plan(held).runs[0].unfinished.size(), 1U);
  EXPECT_TRUE(plan(held).runs[0].finished_seq_ids.empty());
}

TEST_F(RestorePlanTest, ASaveAfterAnOperationWhoseResultWasNotRecordedUsesItsNumberUp) {
  add(OperationType::kCreateModel, State::kReady);
  add(OperationType::kForwardBackward, State::kPending);                                    // 1
  const FutureRecord external = add(OperationType::kSaveWeightsExternal, State::kPending);  // 2
  put_checkpoint("e", external, CheckpointKind::kExternal);
  const RestorePlan plan = this->plan([](const RunRecord&) { return true; });
  EXPECT_EQ(plan.runs[0].record.next_seq_id, 1);
  EXPECT_EQ(plan.runs[0].unfinished.size(), 1U);
  EXPECT_EQ(plan.runs[0].finished_seq_ids, std::vector<int64_t>{2});
}

TEST_F(RestorePlanTest, ALoadedCheckpointIsWhereTheRunGoesBackTo) {
  add(OperationType::kCreateModel, State::kReady);
  save("a");
  train();
  save("b");
  const FutureRecord load = add(OperationType::kLoadWeights, State::kReady);
  run_.restore_point = CheckpointRef{"tinker://s:train:0/weights/a", on_disk_.begin()->second->future_number};
  run_.restore_number = load.number;
  run_.restore_seq_id = load.keys.seq_id;
  const RestorePlan plan = this->plan();
  EXPECT_EQ(plan.runs[0].checkpoint->path.name, "a");
  EXPECT_FALSE(plan.runs[0].lost);
  EXPECT_TRUE(plan.gone.empty());
}

TEST_F(RestorePlanTest, APendingSampleAndAPendingCreationAreGone) {
  FutureRecord sample;
  sample.request = RequestId("sample");
  sample.keys.operation = OperationType::kSample;
  futures_.push_back(sample);
  StoredState state;
  state.futures = futures_;
  FutureRecord create = sample;
  create.request = RequestId("create");
  create.keys.operation = OperationType::kCreateModel;
  create.keys.run = RunId("unknown:train:0");
  state.futures.push_back(create);
  const RestorePlan plan =
      plan_restore(std::move(state), {[](const std::string&) { return nullptr; }, [](const RunId&) { return nullptr; },
                                      [](const RunId&, uint64_t) { return nullptr; }});
  EXPECT_TRUE(plan.futures.empty());
  ASSERT_EQ(plan.gone.size(), 2U);
  EXPECT_NE(plan.gone[0].error.message.find("Submit it again"), std::string::npos);
}

TEST_F(RestorePlanTest, PendingOperationsThatTouchNoWeightsKeepTheNumbering) {
  add(OperationType::kCreateModel, State::kReady);
  save("a");
  add(OperationType::kSaveWeightsForSampler, State::kPending);
  const RestorePlan plan = this->plan();
  EXPECT_FALSE(plan.runs[0].lost);
  EXPECT_EQ(plan.runs[0].record.next_seq_id, 3);  // the client has used 2
  EXPECT_EQ(plan.gone.size(), 1U);
}

TEST_F(RestorePlanTest, SeqIdsFreedByARestartStayFreeAtTheNext) {
  add(OperationType::kCreateModel, State::kReady);
  save("a");                                                  // seq 1
  train();                                                    // 2, 3
  add(OperationType::kSaveWeightsForSampler, State::kReady);  // 4
  add(OperationType::kOptimStep, State::kFailed);             // 5
  const RestorePlan first = plan();
  EXPECT_TRUE(first.runs[0].lost);
  EXPECT_EQ(first.runs[0].record.next_seq_id, 2);
  keep(first);
  seq_ = 1;  // the client goes back and uses them again
  train();
  save("b");
  const RestorePlan second = plan();
  EXPECT_FALSE(second.runs[0].lost);
  EXPECT_EQ(second.runs[0].record.next_seq_id, 5);
  std::map<std::string, int> keys;
  for (const FutureRecord& future : second.futures) ++keys[future.key];
  for (int seq = 1; seq <= 4; ++seq) EXPECT_EQ(keys["s:train:0#" + std::to_string(seq)], 1) << seq;
  EXPECT_EQ(keys.count("s:train:0#5"), 0U);
}

TEST_F(RestorePlanTest, UsedSeqIdsStayUsedAtTheNextRestart) {
  add(OperationType::kCreateModel, State::kReady);
  save("a");
  add(OperationType::kSaveWeightsForSampler, State::kPending);
  keep(plan());
  const RestorePlan second = plan();
  EXPECT_FALSE(second.runs[0].lost);
  EXPECT_EQ(second.runs[0].record.next_seq_id, 3);
}

}  // namespace
}  // namespace tuft::control
