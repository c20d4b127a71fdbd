// Decides which operation of a run comes next. A queue holds the operations whose order is known; a reorder buffer
// holds operations that arrived before one with a lower seq_id. Not thread-safe: the run's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tuft::control {

template <typename Operation>  // has std::optional<int64_t> seq_id and Nanos placed
class OperationLog {
 public:
  using Ptr = std::shared_ptr<Operation>;
  enum class Insertion : uint8_t {
    kQueued,    // in the queue
    kBuffered,  // waits for a lower seq_id
    kPassed,    // refused: its seq_id is used up
  };

  // Returns whether insert() would keep the reorder buffer within `window` operations. The missing seq_id always has
  // room.
  bool has_room(std::optional<int64_t> seq_id, size_t window) const {
    return !seq_id || *seq_id <= next_ || buffered_.size() < window;
  }

  // Adds an operation. Without a seq_id it comes after all that is queued.
  Insertion insert(Ptr operation) {
    if (!operation->seq_id) {
      queued_.push_back(std::move(operation));
      return Insertion::kQueued;
    }
    const int64_t seq_id = *operation->seq_id;
    if (seq_id < next_ || buffered_.contains(seq_id)) return Insertion::kPassed;
    if (seq_id > next_) {
      buffered_.emplace(seq_id, std::move(operation));
      return Insertion::kBuffered;
    }
    queued_.push_back(std::move(operation));
    ++next_;
    release();
    return Insertion::kQueued;
  }

  // The operation that comes next; null if there is none or its predecessor is missing. take() removes it.
  const Operation* front() const { return queued_.empty() ? nullptr : queued_.front().get(); }
  Ptr take() {
    if (queued_.empty()) return nullptr;
    Ptr operation = std::move(queued_.front());
    queued_.pop_front();
    return operation;
  }

  // Puts an operation back that take() returned: it is the next one again.
  void put_back(Ptr operation) { queued_.push_front(std::move(operation)); }

  // Removes and returns all operations, the queued ones first. Their seq_ids are used up; missing lower ones may still
  // come.
  std::vector<Ptr> drain() {
    std::vector<Ptr> all(queued_.begin(), queued_.end());
    queued_.clear();
    for (auto& [seq_id, operation] : buffered_) {
      if (operation != nullptr) all.push_back(std::move(operation));
      operation = nullptr;
    }
    return all;
  }

  // If an operation has waited for a missing seq_id since `since` or longer: removes and returns all that are buffered,
  // sets *missing to the missing seq_id, and goes on after the highest.
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

  // Sets the seq_id that comes next. Requires an empty log.
  void start_at(int64_t seq_id) { next_ = seq_id; }
  // An operation with this seq_id has ended without having been in the log.
  void note_used(int64_t seq_id) {
    if (seq_id >= next_) buffered_.emplace(seq_id, nullptr);
    release();
  }
  // Removes and returns all operations, and sets the seq_id that comes next. No seq_id is used up.
  std::vector<Ptr> restart_at(int64_t seq_id) {
    std::vector<Ptr> all = drain();
    buffered_.clear();
    next_ = seq_id;
    return all;
  }

  // Returns the first operation of which `is_it(operation)` is true; null if there is none.
  template <typename Predicate>
  Ptr find(Predicate is_it) const {
    for (const Ptr& operation : queued_) {
      if (is_it(*operation)) return operation;
    }
    for (const auto& [seq_id, operation] : buffered_) {
      if (operation != nullptr && is_it(*operation)) return operation;
    }
    return nullptr;
  }

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
  std::list<Ptr> queued_;            // an empty std::deque takes 600 bytes, and most runs have nothing to do
  std::map<int64_t, Ptr> buffered_;  // null: the seq_id is used up
};

}  // namespace tuft::control
