// Chooses the contents of the next training pass: deficit round robin over the queues of the adapters (scheduler.h).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/train/scheduler.h"
#include "engine/train/task.h"

namespace tuft::engine {

struct QueuedTask {
  TrainRequestNumber number = 0;
  std::unique_ptr<TrainTask> task;
  TrainScheduler::Done done;
  bool alone = false;  // true: it shares its passes with no other request
};

// The requests of one adapter, oldest first. Never empty.
struct AdapterQueue {
  AdapterId adapter;
  std::string tenant;
  int rank = 0;
  std::deque<QueuedTask> tasks;
  double deficit = 0;   // credit in tokens, for one pass or the next datum at most; below 0: a debt
  int passed_over = 0;  // passes since the last one in which it took part
};

// The queue that has waited longest comes first.
using AdapterQueues = std::vector<std::unique_ptr<AdapterQueue>>;

// What an adapter owes of which nothing waits.
struct AdapterDebt {
  AdapterId adapter;
  std::string tenant;
  double credit = 0;  // below 0
};
using AdapterDebts = std::vector<AdapterDebt>;

// Datums [begin, end) of one task of a queue.
struct Slice {
  AdapterQueue* queue = nullptr;
  size_t task = 0;
  size_t begin = 0;
  size_t end = 0;
  int tokens = 0;

  QueuedTask& queued() const { return queue->tasks[task]; }
};

struct PassPlan {
  bool backward = true;
  int tokens = 0;
  int64_t room = 0;           // TrainTask::room_of() of all datums; the budget is for it
  std::vector<Slice> slices;  // ordered by rank and adapter; those of one adapter in order of arrival
};

// Plans a pass of at least one datum and at most `batch_tokens` tokens, unless one datum alone is longer. Takes any
// part of the oldest request of a queue, but a later one whole or not at all: so only the oldest request can be
// unfinished, and only its gradient may have to be restored. Moves the queues that take part to the end of `queues`, in
// their order, and removes the debts that are paid. If it throws std::bad_alloc, `queues` and `debts` hold what they
// held.
PassPlan plan_pass(AdapterQueues& queues, AdapterDebts& debts, int batch_tokens);

}  // namespace tuft::engine
