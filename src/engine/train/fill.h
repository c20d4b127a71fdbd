// What goes into the next pass.
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
  bool alone = false;  // its passes are its own
};

// The requests of one adapter, oldest first: never empty.
struct TrainLine {
  AdapterId adapter;
  std::string tenant;
  int rank = 0;
  std::deque<QueuedTask> tasks;
  double deficit = 0;   // tokens that it may take out; below 0: has had beforehand
  int passed_over = 0;  // passes since the last one that took something
};

// Longest waiting first.
using TrainLines = std::vector<std::unique_ptr<TrainLine>>;

// Datums [begin, end) of a line's task.
struct Portion {
  TrainLine* line = nullptr;
  size_t task = 0;
  size_t begin = 0;
  size_t end = 0;
  int tokens = 0;

  QueuedTask& queued() const { return line->tasks[task]; }
};

struct PassPlan {
  bool backward = true;
  int tokens = 0;
  std::vector<Portion> portions;  // by rank and adapter; of one adapter in order
};

// Takes at least one datum; of a line's oldest request as many as it may, of a later one all or nothing (so that only
// the oldest is ever half done, and only its gradient may have to be taken back). Moves the lines that have a part to
// the end of `lines`, in their order.
PassPlan fill_pass(TrainLines& lines, int batch_tokens);

}  // namespace tuft::engine
