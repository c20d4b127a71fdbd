// The limits of the disk thread's queue.
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "control/checkpoints/tests/checkpoint_actions_fixture.h"
#include "control/queues/disk_worker.h"

namespace tuft::control {
namespace {

class DiskQueue : public CheckpointActionsTest {};

// Blocks the disk thread until it is released.
class HeldDisk {
 public:
  std::function<void(Status)> done() {
    return [reached = &reached_, gate = gate_.get_future().share()](const Status&) {
      reached->set_value();
      gate.wait();
    };
  }
  void await_held() { reached_.get_future().wait(); }
  void release() { gate_.set_value(); }

 private:
  std::promise<void> reached_, gate_;
};

TEST_F(DiskQueue, AUserWhoFillsTheDiskQueueDoesNotDelayOthers) {
  boot();
  const std::string alices = saved(create_model(alice), 1, "x");
  const std::string bobs = value<SaveWeightsResult>(bob, save(create_model(bob), bob, 1, "x")).path;
  HeldDisk disk;
  actions().set_public(alice, path_of(alices), true, no_trace, disk.done());
  disk.await_held();
  std::vector<std::promise<Status>> waiting(DiskWorker::kTasksPerUserMax);
  std::atomic<int> answered = 0;
  for (std::promise<Status>& each : waiting) {
    actions().set_ttl(alice, path_of(alices), 100, no_trace, [&](Status status) {
      ++answered;
      each.set_value(std::move(status));
    });
  }
  const Status over = set_ttl(alice, alices, 100);  // answered although the disk is held
  EXPECT_EQ(over.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(is_user_error(over.error().code));
  std::promise<int> bobs_turn;
  actions().remove(bob, path_of(bobs), no_trace, [&](const Status& status) {
    EXPECT_TRUE(status.ok());
    bobs_turn.set_value(answered);
  });
  disk.release();
  EXPECT_LE(bobs_turn.get_future().get(), 2);
  for (std::promise<Status>& each : waiting) EXPECT_TRUE(each.get_future().get().ok());
}

// A change writes all metadata again, 100 bytes of request up to 400 KB, and was a turn like any other.
TEST_F(DiskQueue, AChangeOfACheckpointWithLongMetadataTakesSeveralTurns) {
  CreateModel request = create_request(boot_with_session());
  request.user_metadata["note"] = std::string(60'000, 'n');
  const auto created = plane().create_model(alice, request, no_trace);
  ASSERT_TRUE(created.ok()) << created.error().message;
  const std::string alices = saved(value<CreateModelResult>(alice, created->request).run, 1, "x");
  const std::string bobs = value<SaveWeightsResult>(bob, save(create_model(bob), bob, 1, "x")).path;
  HeldDisk disk;
  actions().set_public(bob, path_of(bobs), true, no_trace, disk.done());
  disk.await_held();
  std::atomic<int> bobs_answered = 0;
  std::promise<int> alices_turn;
  actions().set_ttl(alice, path_of(alices), 100, no_trace, [&](const Status& status) {
    EXPECT_TRUE(status.ok());
    alices_turn.set_value(bobs_answered);
  });
  for (int i = 0; i < 10; ++i) {
    actions().set_ttl(bob, path_of(bobs), 100, no_trace, [&](const Status&) { ++bobs_answered; });
  }
  disk.release();
  EXPECT_EQ(alices_turn.get_future().get(), 10);
}

TEST_F(DiskQueue, RequestsForThingsOfOthersDoNotEnterTheDiskQueue) {
  boot();
  const std::string path = saved(create_model(alice), 1, "x");
  HeldDisk disk;
  actions().set_public(alice, path_of(path), false, no_trace, disk.done());
  disk.await_held();
  for (int i = 0; i < 2 * DiskWorker::kTasksPerUserMax; ++i) {
    ASSERT_EQ(remove(bob, path).error().code, ErrorCode::kNotFound);
    ASSERT_EQ(remove(bob, "tinker://none/weights/none").error().code, ErrorCode::kNotFound);
  }
  disk.release();
}

TEST_F(DiskQueue, ASaveThatTheWorkerHasWrittenIsKeptWhenTheQueueIsFull) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "x");
  worker().hold_answers(true);
  const RequestId save_request = save(run, alice, 2, "y");
  while (worker().calls_of("save_state").size() < 2) std::this_thread::yield();
  HeldDisk disk;
  actions().set_public(alice, path_of(path), true, no_trace, disk.done());
  disk.await_held();
  for (int i = 0; i < DiskWorker::kTasksPerUserMax; ++i) {
    actions().set_ttl(alice, path_of(path), 100, no_trace, [](const Status& status) { EXPECT_TRUE(status.ok()); });
  }
  worker().answer_all();
  disk.release();
  EXPECT_EQ(value<SaveWeightsResult>(alice, save_request).path, "tinker://" + run.str() + "/weights/y");
}

}  // namespace
}  // namespace tuft::control
