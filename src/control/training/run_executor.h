// Executes the operations of training runs: one at a time for each run, in seq_id order. Runs are independent of each
// other.
//
// An operation goes through these stages: enqueue() puts it into the log of its run (operation_log.h); when it is next
// and the worker holds the run's adapter, the run waits in the training queue of its base model (pump()); in its turn
// the operation goes to the OperationHandler of its type; conclude() ends its future and starts the next one.
//
// Order of locks: a run's record_mutex, a run's mutex, then the locks of FutureStore, CheckpointStore and Persistence.
// Each of these is innermost, except that FutureStore's may be held while Persistence takes its own. No lock is held
// during a call to an actor, a callback or a file operation.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "config/config.h"
#include "control/futures/future_store.h"
#include "control/persistence/persistence.h"
#include "control/training/lifetime.h"
#include "control/training/run.h"
#include "control/training/run_table.h"

namespace tuft::control {

// The error for operations of a run that was unloaded before their turn.
inline Error model_unloaded() {
  return not_found("unknown model_id: it was unloaded before this operation's turn", "model_not_found");
}

class OperationHandler {
 public:
  virtual ~OperationHandler() = default;
  // Executes an operation whose turn has come. Calls RunExecutor::conclude() exactly once when it has ended, during
  // this call or later on any thread. Called without a lock.
  virtual void start(const RunPtr& run, const OperationPtr& operation) = 0;
};

// It has eight collaborators: beside those of the stages above, what every refusal and record needs (limits, clock,
// lifetime), and the callback of on_idle().
//
// Thread-safe after set_handler() and on_idle().
class RunExecutor {
 public:
  RunExecutor(const config::Limits& limits, const Clock& clock, FutureStore& futures, Persistence& persistence,
              RunTable& runs, const Lifetime& lifetime)
      : limits_(limits),
        clock_(clock),
        futures_(futures),
        persistence_(persistence),
        runs_(runs),
        lifetime_(lifetime) {}

  // `handler` executes operations of these types. An operation that creates its run goes to the handler of
  // kCreateModel, whatever its type.
  void set_handler(std::initializer_list<OperationType> types, OperationHandler& handler);
  // `idle` is called after each operation of a run, before one where the run is to be saved, and for each attended run
  // in sweep(), without a lock.
  void on_idle(std::function<void(const RunPtr&)> idle) { idle_ = std::move(idle); }

  // Takes in an admitted operation. It fails if the run has ended, or if its seq_id is used up ("seq_id_passed").
  void enqueue(const RunPtr& run, const OperationPtr& operation);
  // Makes an operation of the server, with its record and its trace, like those of clients. Returns null where none can
  // be admitted now, because the store is away or the server ends.
  OperationPtr own_operation(Run& run, OperationType type, RunOperation::Payload payload);
  // Executes an operation of the server before all that wait, without a turn. Returns false if the run is at work or
  // gone.
  bool execute_first(const RunPtr& run, const OperationPtr& operation);
  // Starts the next operation of the run if there is one that can start now.
  void pump(const RunPtr& run);
  // Ends the operation that the run executes, and starts the next. If the worker was lost, the operations in the log
  // fail too; if the run has a complete journal, the operation is instead executed again, once (run_journal.h).
  void conclude(const RunPtr& run, const OperationPtr& operation, Result<FutureValue> result);
  // Ends operations that were not started.
  void fail(const RunPtr& run, const std::vector<OperationPtr>& operations, const Error& error);
  // Removes the run from the table and fails the operations in its log. The adapter stays in the worker.
  void close(const RunPtr& run, const Error& why);

  // Goes on with the attended runs (run_table.h). Fails operations that have waited limits.gap_timeout_seconds for a
  // missing seq_id, or kWorkerWait for a worker.
  void sweep();
  // Fails all operations in the logs. Call after FutureStore::shut_down().
  void shut_down();

 private:
  static void open_numbers_locked(Run& run, const RunOperation& operation) TUFT_REQUIRES(run.mutex);
  static Nanos note_held_locked(Run& run, Nanos now) TUFT_REQUIRES(run.mutex);
  bool can_start_locked(const Run& run) const TUFT_REQUIRES(run.mutex);
  static std::optional<Error> refusal_of(Run& run, const RunOperation& operation);
  bool start_turn(const RunPtr& run, const ModelBackendPtr& worker);
  void start(const RunPtr& run, const OperationPtr& operation);
  bool put_back(const RunPtr& run, const OperationPtr& operation, const Error& error);
  void sweep_run(const RunPtr& run);

  const config::Limits& limits_;
  const Clock& clock_;
  FutureStore& futures_;
  Persistence& persistence_;
  RunTable& runs_;
  const Lifetime& lifetime_;
  std::array<OperationHandler*, kOperationTypes> handlers_{};  // by OperationType
  std::function<void(const RunPtr&)> idle_;
};

}  // namespace tuft::control
