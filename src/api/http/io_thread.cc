#include "api/http/io_thread.h"

#include <algorithm>

namespace tuft::api {

ConnectionCounts::Entry ConnectionCounts::enter(uint64_t address_group) {
  MutexLock lock(mutex_);
  if (open_.load(std::memory_order_relaxed) >= limits_.connections_max) return Entry::kTooMany;
  int& count = of_address_[address_group];
  if (count >= limits_.connections_per_address_max) return Entry::kTooManyOfAddress;
  ++count;
  open_.fetch_add(1, std::memory_order_relaxed);
  return Entry::kTaken;
}

void ConnectionCounts::leave(uint64_t address_group) {
  MutexLock lock(mutex_);
  open_.fetch_sub(1, std::memory_order_relaxed);
  const auto found = of_address_.find(address_group);
  if (--found->second == 0) of_address_.erase(found);
}

ByteAccount::Most most_heads(const config::Limits& limits) {
  return {.each = limits.unfinished_head_bytes_max / 4, .all = limits.unfinished_head_bytes_max};
}

ByteAccount::Most most_bodies(const config::Limits& limits) {
  return {.each = std::max(limits.receiving_bytes_max / 2, limits.request_body_bytes_max),
          .all = limits.receiving_bytes_max};
}

ByteAccount::Most most_answers(const config::Limits& limits) {
  return {.each = limits.sending_bytes_max / 2, .all = limits.sending_bytes_max};
}

}  // namespace tuft::api
