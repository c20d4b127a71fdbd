// The steps of clients, the worker, the store and time in every order that a seed makes, with workers that end, a store
// that goes away and servers that are killed. Whatever the order: an operation is executed once or reported failed,
// operations of a run execute in the order of their seq_ids, a repeated submission gets the first result, a result that
// a client has seen stays, and no step of a run is lost without a word.
#include "base/testing/interleaving.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "control/control_plane.h"
#include "control/tests/fake_actor.h"
#include "control/tests/fake_model_config.h"
#include "control/tests/stepped_store.h"
#include "control/tests/users.h"

namespace tuft::control {
namespace {

using testing::Interleaving;

constexpr size_t kRuns = 3;
constexpr int kWindow = 3;  // numbers that a client sends ahead of the first one that is missing

class Scene {
 public:
  Scene(Interleaving& order, const std::filesystem::path& directory) : order_(order) {
    config_ = fake_model_config(directory, "m");
    config_.persistence.mode = config::PersistenceMode::kFile;
    boot();
    const auto session = plane_->create_session(kAlice, {});
    EXPECT_TRUE(session.ok());
    for (size_t i = 0; i < kRuns; ++i) {
      CreateModel request;
      request.session = *session;
      request.model_seq_id = static_cast<int64_t>(i);
      request.base_model = "m";
      request.lora.rank = 8;
      const auto created = plane_->create_model(kAlice, request, {});
      EXPECT_TRUE(created.ok());
      runs_[i].id = *created->run;
    }
    drain();
  }
  ~Scene() { end_server(); }

  void step() {
    switch (order_.below(12)) {
      case 0:
      case 1:
      case 2:
        return submit();
      case 3:
        return poll();
      case 4:
      case 5:
        return answer_worker();
      case 6:
      case 7:
        return run_store();
      case 8:
        return answer_store();
      case 9:
        return sweep();
      case 10:
        return order_.happens(20) ? cancel() : poll();
      default:
        return trouble();
    }
  }

  // Lets everything end, and compares the runs with what the client was told.
  void finish() {
    store_->set_reachable(true);
    if (!actor_->ready()) actor_->start();
    drain();
    for (Run& run : runs_) settle(run);
    for (const Run& run : runs_) check(run);
  }

 private:
  struct Operation {
    bool steps = false;                // an optim_step, else a forward_backward
    std::optional<RequestId> request;  // of the newest submission
    bool promised = false;             // the client has got its request id
    std::string outcome;               // as the client saw it: "ready", or the reason of the failure
    bool told_of_loss = false;         // the failure says that the run may have lost steps
  };
  struct Run {
    RunId id;
    std::map<int, Operation> operations;  // by seq_id
  };

  void boot() {
    ++life_;
    actor_ = std::make_unique<FakeActor>("m");
    actor_->hold_answers(true);
    auto store = std::make_unique<SteppedStore>(contents_);
    store_ = store.get();
    auto persistence = Persistence::open(std::move(store), config_);
    ASSERT_TRUE(persistence.ok()) << persistence.error().message;
    store_->begin_steps();
    plane_ = ControlPlane::create(config_, {actor_.get()}, clock_, std::move(*persistence));
    actor_->start();
  }
  void end_server() {
    note_calls();
    actor_->stop_holding();
    store_->run_on_thread();
    plane_.reset();
    actor_.reset();
  }
  // The killed server writes into contents that nobody reads.
  void kill_server() {
    order_.step("kill the server");
    auto left = std::make_shared<SteppedStore::Contents>(*contents_);
    ++life_;  // what the old server says at its end reaches no client
    end_server();
    contents_ = std::move(left);
    last_.clear();
    boot();
    for (Run& run : runs_) {
      for (auto& [seq, operation] : run.operations) ask_again(run, seq, operation);
    }
  }
  // Asks the new server for an operation. What it undid, what failed before, and what nobody was promised may be
  // submitted again: then it is another operation, and may be executed again.
  void ask_again(const Run& run, int seq, Operation& operation) {
    if (operation.promised) {
      std::optional<Result<FutureSnapshot>> answer;
      const ControlPlane::WaitId wait = plane_->wait_future(
          kAlice, *operation.request, [&](Result<FutureSnapshot> snapshot) { answer = std::move(snapshot); });
      while (!answer && (store_->run_next() || store_->answer_next())) {
      }
      plane_->end_wait(wait);
      ASSERT_TRUE(answer) << operation.request->str() << " has not ended after a restart";
      const std::string failure = failure_of(*answer).reason;
      if (failure != "server_restarted") see(seq, operation, *answer);
      if (failure.empty()) return;
      operation.told_of_loss = operation.told_of_loss || failure == "server_restarted";
    }
    operation.request.reset();
    operation.promised = false;
    operation.outcome.clear();
    executed_.erase("forward_backward " + run.id.str() + " n" + std::to_string(seq));
  }
  // Each pass is executed once, and those of a run in order, whatever happens to workers and servers.
  void note_calls() {
    for (const std::string& call : actor_->calls_of("forward_backward")) {
      EXPECT_EQ(++executed_[call], 1) << call << " was executed twice";
      const size_t space = call.find(' ', call.find(' ') + 1);
      const std::string run = call.substr(0, space);
      const int seq = std::atoi(call.c_str() + space + 2);
      EXPECT_GT(seq, last_[run]) << call << " came after a later one";
      last_[run] = seq;
    }
    actor_->clear_calls();
  }

  Run& any_run() { return runs_[order_.below(kRuns)]; }
  static int top_of(const Run& run) { return run.operations.empty() ? 0 : run.operations.rbegin()->first; }

  void submit() {
    Run& run = any_run();
    int missing = 1;
    while (run.operations.contains(missing)) ++missing;
    const int seq = std::max<int>(1, missing - 1 + static_cast<int>(order_.below(kWindow)));
    submit(run, seq);
  }
  void submit(Run& run, int seq) {
    const bool steps = seq % 3 == 0;
    Result<Submitted> submitted = internal_error("not sent");
    if (steps) {
      OptimStep request;
      request.run = run.id;
      request.seq_id = seq;
      submitted = plane_->optim_step(kAlice, request, {});
    } else {
      tinker_public::ForwardBackwardRequest request;
      request.set_model_id(run.id.str());
      request.set_seq_id(seq);
      request.set_loss_fn("n" + std::to_string(seq));
      submitted = plane_->forward_backward(kAlice, std::move(request), {});
    }
    order_.step("submit " + run.id.str() + " " + std::to_string(seq) + ": " +
                (submitted.ok() ? submitted->request.str() : submitted.error().reason));
    if (!submitted.ok()) {
      EXPECT_EQ(submitted.error().code, ErrorCode::kUnavailable) << submitted.error().message;
      return;
    }
    Operation& operation = run.operations[seq];
    operation.steps = steps;
    const RequestId first = operation.request.value_or(submitted->request);
    EXPECT_EQ(submitted->request, first) << "repeated submission of " << seq;
    operation.request = submitted->request;
    plane_->when_durable([this, life = life_, &operation](const Status& status) {
      if (status.ok() && life == life_) operation.promised = true;
    });
  }

  void poll() {
    Run& run = any_run();
    if (run.operations.empty()) return;
    auto at = run.operations.begin();
    std::advance(at, static_cast<ptrdiff_t>(order_.below(run.operations.size())));
    poll(at->first, at->second);
  }
  void poll(int seq, Operation& operation) {
    if (!operation.request || !operation.promised) return;
    order_.step("poll " + operation.request->str());
    const auto calls = std::make_shared<int>(0);
    const ControlPlane::WaitId wait = plane_->wait_future(
        kAlice, *operation.request, [this, seq, &operation, calls, life = life_](Result<FutureSnapshot> snapshot) {
          EXPECT_EQ(++*calls, 1) << "a wait ended twice";
          if (life == life_) see(seq, operation, snapshot);
        });
    if (order_.happens(50)) plane_->end_wait(wait);
  }
  // Returns an error without a reason if there is none.
  static Error failure_of(const Result<FutureSnapshot>& snapshot) {
    if (!snapshot.ok()) return copy_of(snapshot.error());
    return snapshot->state == FutureSnapshot::State::kFailed ? copy_of(snapshot->error) : Error{};
  }
  void see(int seq, Operation& operation, const Result<FutureSnapshot>& snapshot) {
    if (snapshot.ok() && snapshot->state == FutureSnapshot::State::kPending) return;
    // A store that is away cannot give a result; the next poll asks again.
    if (!snapshot.ok() && snapshot.error().code == ErrorCode::kUnavailable) return;
    const Error failure = failure_of(snapshot);
    const bool ready = failure.reason.empty();
    const std::string outcome = ready ? "ready" : failure.reason;
    order_.step("  " + operation.request->str() + " " + outcome);
    if (!operation.outcome.empty()) {
      EXPECT_EQ(outcome, operation.outcome) << operation.request->str() << ": " << failure.message;
    }
    EXPECT_NE(failure.code, ErrorCode::kNotFound) << "a promised operation is unknown";
    operation.outcome = outcome;
    operation.told_of_loss = failure.code == ErrorCode::kUnavailable || failure.code == ErrorCode::kDataLoss ||
                             failure.code == ErrorCode::kGone;
    if (!ready || operation.steps) return;
    tinker_public::ForwardBackwardOutput output;
    const auto* bytes = std::get_if<ProtobufResult>(snapshot->value.get());
    ASSERT_TRUE(bytes != nullptr && output.ParseFromString(bytes->bytes));
    EXPECT_EQ(output.loss_fn_output_type(), "n" + std::to_string(seq)) << "the result of another operation";
  }

  void cancel() {
    Run& run = any_run();
    if (run.operations.empty()) return;
    const Operation& operation = run.operations.begin()->second;
    if (!operation.request || !operation.promised) return;
    order_.step("cancel " + operation.request->str());
    (void)plane_->cancel_future(kAlice, *operation.request);
  }

  void answer_worker() {
    const size_t held = actor_->held();
    if (held == 0) return;
    order_.step("answer of the worker");
    actor_->answer_any(order_.below(held));
  }
  void run_store() {
    order_.step("store");
    store_->run_next();
  }
  void answer_store() {
    order_.step("answer of the store");
    store_->answer_next();
  }
  void sweep() {
    order_.step("sweep");
    clock_.advance(kSecond / 4);
    plane_->sweep();
  }
  void trouble() {
    switch (order_.below(12)) {
      case 0:
        order_.step("the worker ends and starts");
        return actor_->restart();
      case 1:
        order_.step("the worker ends");
        return actor_->die();
      case 2:
      case 3:
        if (actor_->ready()) return;
        order_.step("the worker starts");
        return actor_->start();
      case 4:
        order_.step("the store is away");
        return store_->set_reachable(false);
      case 5:
      case 6:
      case 7:
        order_.step("the store is back");
        return store_->set_reachable(true);
      case 8:
        return kill_server();
      default:
        return sweep();
    }
  }

  // Ends when nothing has moved for some sweeps, in which the persistence tries again what failed.
  void drain() {
    for (int idle = 0; idle < 20; ++idle) {
      while (true) {
        const bool worked = actor_->held() > 0 && actor_->answer_any(order_.below(actor_->held()));
        const bool stored = store_->run_next();
        if (!worked && !stored && !store_->answer_next()) break;
        idle = 0;
      }
      sweep();
    }
  }
  // Sends what is missing, then one operation after the other until one succeeds: then the run has told all that it
  // lost.
  void settle(Run& run) {
    for (int seq = 1; seq <= top_of(run); ++seq) submit(run, seq);
    drain();
    for (int attempt = 0;; ++attempt) {
      ASSERT_LT(attempt, 5) << run.id.str() << " never succeeds again";
      const int newest = top_of(run) + 1;
      submit(run, newest);
      drain();
      for (auto& [seq, operation] : run.operations) {
        if (operation.outcome.empty()) poll(seq, operation);
      }
      drain();
      for (const auto& [seq, operation] : run.operations) {
        ASSERT_TRUE(operation.promised) << run.id.str() << " " << seq;
        ASSERT_NE(operation.outcome, "") << run.id.str() << " " << seq << " never ends";
      }
      if (run.operations.at(newest).outcome == "ready") return;
    }
  }
  // A failure may say that steps are lost although they are not; no step may be lost without one.
  void check(const Run& run) {
    int steps = 0, all = 0;
    for (const auto& [seq, operation] : run.operations) {
      if (operation.told_of_loss) steps = 0;
      if (operation.steps && operation.outcome == "ready") ++steps, ++all;
    }
    EXPECT_GE(actor_->weights_of(run.id.str()), steps) << run.id.str() << " lost steps without a word";
    EXPECT_LE(actor_->weights_of(run.id.str()), all) << run.id.str() << " has steps that nobody was told of";
  }

  Interleaving& order_;
  config::ServerConfig config_;
  FakeClock clock_;
  std::shared_ptr<SteppedStore::Contents> contents_ = std::make_shared<SteppedStore::Contents>();
  std::unique_ptr<FakeActor> actor_;
  SteppedStore* store_ = nullptr;
  std::unique_ptr<ControlPlane> plane_;
  int life_ = 0;
  std::array<Run, kRuns> runs_;
  std::map<std::string, int> executed_;  // calls of forward_backward
  std::map<std::string, int> last_;      // seq_id, by call and run
};

TEST(ControlInterleavings, EveryOrderOfStepsKeepsThePromises) {
  testing::for_each_interleaving(300, [](Interleaving& order) {
    const TempDir directory;
    Scene scene(order, directory.path());
    for (int step = 0; step < 150; ++step) scene.step();
    scene.finish();
  });
}

}  // namespace
}  // namespace tuft::control
