// The part of EngineLoop that gives work to the file thread and the page thread and takes it back.
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "worker/engine_loop.h"
#include "worker/without_exceptions.h"

namespace tuft::worker {
namespace {

// Adapters that are read, or were read and wait for the engine, at a time.
constexpr int kLoadsMax = 8;

}  // namespace

// Gives the first operation to the file thread, or lets it wait until fewer adapters are loaded. Returns false if it
// failed, for a lack of memory.
bool EngineLoop::send_to_files(Queues::iterator at) {
  Operation& operation = *at->second.operations.front();
  const bool loads = operation.loads();
  const bool waits = loads && loads_ == kLoadsMax;
  // Each queue has at most one entry, and there are at most operations_max queues: only memory can be lacking.
  const Status sent = without_exceptions([&]() -> Status {
    if (waits) {
      loads_waiting_.push(operation.tenant(), 1, std::string(at->first));
    } else if (!files_.try_push(operation.tenant(), {at->first, &operation})) {
      return out_of_memory();
    }
    return {};
  });
  if (sent.ok()) {
    if (loads && !waits) ++loads_;
    return true;
  }
  operation.fail(sent.error());
  set_begun(at->second, false);
  return false;
}

void EngineLoop::load_ended() {
  --loads_;
  while (loads_ < kLoadsMax && !loads_waiting_.empty()) {
    const auto at = queues_.find(loads_waiting_.pop());
    if (!send_to_files(at)) end_first(at);
  }
}

void EngineLoop::accept(FileDone done) {
  AdapterQueue& queue = queues_.find(done.queue)->second;
  try {
    add_turn(queue, std::move(done.queue));
  } catch (const std::bad_alloc&) {
    queue.has_turn = false;
    lacked_memory_ = true;
  }
}

void EngineLoop::run_files() {
  while (auto job = files_.pop()) {
    if (!skip_files_) run_file(std::move(*job));
  }
}

void EngineLoop::run_pages() {
  while (auto page = pages_.pop()) {
    if (!skip_files_) run_page(std::move(*page));
  }
}

void EngineLoop::run_file(FileJob job) {
  Operation& operation = *job.operation;
  const auto done = without_exceptions([&]() -> Result<Operation::Progress> {
    operation.run_file();
    return Operation::Progress::kDone;
  });
  if (!done.ok()) operation.file_failed(done.error());
  inbox_.deliver(FileDone{std::move(job.queue)});
}

void EngineLoop::run_page(std::unique_ptr<PageJob> page) {
  page->run();
  inbox_.deliver(std::move(page));
}

bool EngineLoop::run_file_step() {
  auto job = files_.try_pop();
  if (!job) return false;
  run_file(std::move(*job));
  return true;
}

bool EngineLoop::run_page_step() {
  auto page = pages_.try_pop();
  if (!page) return false;
  run_page(std::move(*page));
  return true;
}

}  // namespace tuft::worker
