#include "control/futures/finished_futures.h"

#include <iterator>
#include <utility>

namespace tuft::control {
namespace {

// The memory of a finished future without a value that grows with what was asked for: the record, its strings, its
// entries in the maps and feeds, and the metrics of an optimizer step. A server was measured to take 1,730 to 1,805
// bytes.
constexpr int64_t kRecordBytes = 1920;

}  // namespace

void FinishedFutures::add(const FuturePtr& future) {
  future->is_kept_ = true;
  future->bytes_ = kRecordBytes + future->result_bytes_;
  finished_.push_back(future);
  future->in_finished_ = std::prev(finished_.end());
  std::list<Future*>& unread = shelves_[future->user].unread;
  unread.push_back(future.get());
  future->in_shelf_ = std::prev(unread.end());
  count(future->user, future->bytes_);
}

void FinishedFutures::count(const UserId& user, int64_t change) {
  const auto shelf = shelves_.find(user);
  const int64_t before = shelf->second.bytes;
  bytes_ += change;
  shelf->second.bytes += change;
  by_bytes_.change(user, before, shelf->second.bytes);
  if (shelf->second.bytes == 0) shelves_.erase(shelf);
}

bool FinishedFutures::deliver(Future& future) {
  if (future.is_delivered_ || !future.is_kept_) return false;
  future.is_delivered_ = true;
  Shelf& shelf = shelves_.at(future.user);
  shelf.delivered.splice(shelf.delivered.end(), shelf.unread, future.in_shelf_);
  return true;
}

FuturePtr FinishedFutures::evict_over(int64_t all_max, int64_t each_max) {
  if (by_bytes_.empty() || (bytes_ <= all_max && by_bytes_.largest().first <= each_max)) return nullptr;
  const Shelf& largest = shelves_.at(by_bytes_.largest().second);
  return take_out(largest.delivered.empty() ? *largest.unread.front() : *largest.delivered.front());
}

FuturePtr FinishedFutures::evict_before(Nanos oldest) {
  if (finished_.empty() || finished_.front()->finished_ >= oldest) return nullptr;
  return take_out(*finished_.front());
}

FuturePtr FinishedFutures::take_out(Future& future, std::shared_ptr<const Error> why) {
  FuturePtr taken = std::move(*future.in_finished_);
  future.is_kept_ = false;
  finished_.erase(future.in_finished_);
  Shelf& shelf = shelves_.at(future.user);
  (future.is_delivered_ ? shelf.delivered : shelf.unread).erase(future.in_shelf_);
  count(future.user, -future.bytes_);
  remember_gone(future.request, future.user, std::move(why));
  return taken;
}

void FinishedFutures::remember_gone(const RequestId& request, const UserId& user, std::shared_ptr<const Error> why) {
  gone_.note(request, user, std::move(why));
}

Error FinishedFutures::why_gone(const UserId& user, const RequestId& request) const {
  const std::shared_ptr<const Error>* why = gone_.find(request, user);
  if (why == nullptr) {
    return not_found("unknown request_id: it was never issued to you, or its result was dropped long ago",
                     "future_not_found");
  }
  if (*why != nullptr) return **why;
  return Error{ErrorCode::kGone,
               "the result was dropped: it was older than limits.future_retention_seconds, or over "
               "limits.future_bytes_per_user_max or limits.future_bytes_max",
               "future_gone"};
}

}  // namespace tuft::control
