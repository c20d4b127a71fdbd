// Which operation of a run comes next: a queue of those whose turn has come or is sure to come, and a reorder buffer
// for those that arrived before one with a lower number. Not thread-safe: the run's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace tuft::control {

template <typename Operation>  // has std::optional<int64_t> seq_id and Nanos placed
class OperationLog {
 public:
  using Ptr = std::shared_ptr<Operation>;
  enum class Place : uint8_t {
    kQueued,    // in its turn
    kBuffered,  // waits for a lower number
    kPassed,    // its number is used up: it will never run
  };

  // What is buffered may not become more than `window`. The number that everybody waits for always has room.
  bool has_room(std::optional<int64_t> seq_id, size_t window) const {
    return !seq_id || *seq_id <= next_ || buffered_.size() < window;
  }

  Place place(Ptr operation) {
    if (!operation->seq_id) {
      queued_.push_back(std::move(operation));
      return Place::kQueued;
    }
    const int64_t seq_id = *operation->seq_id;
    if (seq_id < next_ || buffered_.contains(seq_id)) return Place::kPassed;
    if (seq_id > next_) {
      buffered_.emplace(seq_id, std::move(operation));
      return Place::kBuffered;
    }
    queued_.push_back(std::move(operation));
    ++next_;
    release();
    return Place::kQueued;
  }

  const Operation* front() const { return queued_.empty() ? nullptr : queued_.front().get(); }
  Ptr take() {
    if (queued_.empty()) return nullptr;
    Ptr operation = std::move(queued_.front());
    queued_.pop_front();
    return operation;
  }

  // Takes everything out, the queued first. Their numbers are used up; lower ones that are missing may still come.
  std::vector<Ptr> drain() {
    std::vector<Ptr> all(queued_.begin(), queued_.end());
    queued_.clear();
    for (auto& [seq_id, operation] : buffered_) {
      if (operation != nullptr) all.push_back(std::move(operation));
      operation = nullptr;
    }
    return all;
  }

  // When one has waited since `since` or longer for a missing number: takes out all that wait, and goes on after them.
  // `missing` is that number.
  std::vector<Ptr> give_up_gap(Nanos since, int64_t* missing) {
    std::vector<Ptr> waiting;
    bool expired = false;
    for (const auto& [seq_id, operation] : buffered_) {
      if (operation != nullptr && operation->placed <= since) expired = true;
    }
    if (!expired) return waiting;
    *missing = next_;
    next_ = buffered_.rbegin()->first + 1;
    for (auto& [seq_id, operation] : buffered_) {
      if (operation != nullptr) waiting.push_back(std::move(operation));
    }
    buffered_.clear();
    return waiting;
  }

  // The number that comes next; for an empty log.
  void start_at(int64_t seq_id) { next_ = seq_id; }

  bool empty() const { return queued_.empty() && buffered_.empty(); }
  bool has_gap() const { return !buffered_.empty(); }
  int64_t next_seq_id() const { return next_; }

 private:
  void release() {
    for (auto first = buffered_.begin(); first != buffered_.end() && first->first == next_;) {
      if (first->second != nullptr) queued_.push_back(std::move(first->second));
      first = buffered_.erase(first);
      ++next_;
    }
  }

  int64_t next_ = 1;
  std::deque<Ptr> queued_;
  std::map<int64_t, Ptr> buffered_;  // null: the number is used up
};

}  // namespace tuft::control
