// The part of EngineLoop that gives work to the file thread and the page thread and takes it back.
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "worker/engine_loop.h"
#include "worker/without_exceptions.h"

namespace tuft::worker {

// Returns null for an operation without a copy.
EngineLoop::Copies* EngineLoop::copies_of(const Operation& operation) {
  if (operation.makes()) return &makes_;
  if (operation.loads()) return &loads_;
  return operation.saves() ? &saves_ : nullptr;
}

// Gives the first operation to the file thread or the page thread, or lets it wait until there are fewer copies of its
// kind. Returns false if it failed.
bool EngineLoop::send_to_files(Queues::iterator at) {
  Operation& operation = *at->second.operations.front();
  Copies* const copies = copies_of(operation);
  const bool waits = copies != nullptr && copies->count == copies->most;
  const Status sent = without_exceptions([&]() -> Status {
    if (waits) {
      copies->waiting.push(operation.tenant(), 1, std::string(at->first));
      return {};
    }
    TUFT_TRY(operation.before_file(context_));
    // Each queue has at most one entry, and there are at most operations_max queues: only memory can be lacking. Only
    // pages that are dropped could fill the page thread's queue.
    FileJob job{at->first, &operation};
    const std::string tenant = operation.tenant();
    const bool taken =
        operation.makes() ? pages_.try_push(tenant, PageWork(std::move(job))) : files_.try_push(tenant, std::move(job));
    return taken ? Status() : out_of_memory();
  });
  if (sent.ok()) {
    if (copies != nullptr && !waits) ++copies->count;
    return true;
  }
  operation.fail(sent.error());
  set_begun(at->second, false);
  return false;
}

void EngineLoop::drop_copy(Copies& copies) {
  --copies.count;
  while (copies.count < copies.most && !copies.waiting.empty()) {
    const auto at = queues_.find(copies.waiting.pop());
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

bool EngineLoop::send_to_pages(std::unique_ptr<PageJob>& job) {
  const std::string& tenant = job->tenant;  // the queue reads it before another thread gets the job
  PageWork work(std::move(job));
  if (pages_.try_push(tenant, std::move(work))) return true;
  job = std::move(std::get<std::unique_ptr<PageJob>>(work));
  return false;
}

void EngineLoop::run_page(PageWork work) {
  if (auto* const file = std::get_if<FileJob>(&work)) return run_file(std::move(*file));
  auto& page = std::get<std::unique_ptr<PageJob>>(work);
  page->run();
  if (page->work != PageJob::Work::kDrop) inbox_.deliver(std::move(page));
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
