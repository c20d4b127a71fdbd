// Tells late callbacks whether the objects of training still exist. Answers of workers and tasks of the disk thread may
// come after the server has dropped those objects.
#pragma once

#include <memory>
#include <utility>

namespace tuft::control {

// Thread-safe after begin().
class Lifetime {
 public:
  // Call once, before any other method. `owner` owns every object of training.
  void begin(const std::shared_ptr<void>& owner) { owner_ = owner; }

  // The owner. Locking it gives null once the objects of training have ended; otherwise they all exist until the lock
  // is dropped.
  const std::weak_ptr<void>& owner() const { return owner_; }

  // Returns a callback that runs `work` if the objects of training exist, and otherwise does nothing.
  template <typename Work>
  auto guard(Work work) const {
    return [owner = owner_, work = std::move(work)] {
      if (const auto alive = owner.lock()) work();
    };
  }

 private:
  std::weak_ptr<void> owner_;
};

}  // namespace tuft::control
