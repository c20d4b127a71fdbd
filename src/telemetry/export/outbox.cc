#include "telemetry/export/outbox.h"

#include <utility>

#include "telemetry/record/per_process.h"
#include "telemetry/record/recorder.h"

namespace tuft::telemetry {
namespace internal {

void Outbox::put(bool logs, std::string request, size_t count) {
  std::vector<OutboxBatch> dropped;
  {
    OutboxBatch batch{0, logs, count, std::make_shared<const std::string>(std::move(request))};
    MutexLock lock(mutex_);
    batch.number = ++last_;
    bytes_ += batch.request->size();
    batches_.push_back(std::move(batch));
    while (bytes_ > bytes_max_ && batches_.size() > 1) {
      bytes_ -= batches_.front().request->size();
      dropped.push_back(std::move(batches_.front()));
      batches_.pop_front();
    }
  }
  for (const OutboxBatch& batch : dropped)
    count_dropped(batch.logs ? kLogType : kSpanType, "outbox_full", static_cast<int64_t>(batch.count));
}

std::vector<OutboxBatch> Outbox::read(uint64_t confirmed, size_t bytes_max) {
  std::vector<OutboxBatch> confirmed_batches;  // freed without the lock
  std::vector<OutboxBatch> found;
  MutexLock lock(mutex_);
  while (!batches_.empty() && batches_.front().number <= confirmed) {
    bytes_ -= batches_.front().request->size();
    confirmed_batches.push_back(std::move(batches_.front()));
    batches_.pop_front();
  }
  size_t bytes = 0;
  for (const OutboxBatch& batch : batches_) {
    bytes += batch.request->size();
    if (!found.empty() && bytes > bytes_max) break;
    found.push_back(batch);
  }
  return found;
}

Outbox& outbox() {
  return PerProcess<Outbox>::get();
}

}  // namespace internal

std::vector<OutboxBatch> read_outbox(uint64_t confirmed, size_t bytes_max) {
  return internal::outbox().read(confirmed, bytes_max);
}

}  // namespace tuft::telemetry
