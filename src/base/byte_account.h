// Counts the bytes that each holder (usually a user) has, with a limit per holder and one for the sum.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

namespace tuft {

// Thread-safe; no other lock is taken while its lock is held. Must be owned by a shared_ptr, because a Hold keeps it
// alive.
class ByteAccount : public std::enable_shared_from_this<ByteAccount> {
 public:
  struct Most {
    int64_t each = std::numeric_limits<int64_t>::max();
    int64_t all = std::numeric_limits<int64_t>::max();
  };
  enum class Answer : uint8_t {
    kTaken,
    kOverEach,  // the holder would exceed `each`
    kOverAll,   // the sum would exceed `all`
  };

  // A number of bytes of one holder; the destructor releases them. Not thread-safe.
  class Hold {
   public:
    Hold() = default;  // holds nothing and cannot grow
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { shrink_to(0); }

    // Raises the hold to at least `bytes`. If a limit forbids it, the hold is unchanged.
    Answer grow_to(int64_t bytes, const Most& most);
    // Lowers the hold to at most `bytes`.
    void shrink_to(int64_t bytes);
    // Takes over the bytes of a hold of the same account and holder.
    void join(Hold&& other);
    int64_t bytes() const { return bytes_; }

   private:
    friend class ByteAccount;
    Hold(std::shared_ptr<ByteAccount> account, std::string who) : account_(std::move(account)), who_(std::move(who)) {}

    std::shared_ptr<ByteAccount> account_;
    std::string who_;
    int64_t bytes_ = 0;
  };

  // Returns an empty hold of `who`.
  Hold open(std::string who) { return {shared_from_this(), std::move(who)}; }
  int64_t total() const;
  int64_t held_by(const std::string& who) const;

 private:
  Answer take(const std::string& who, int64_t bytes, const Most& most);
  void give_back(const std::string& who, int64_t bytes);

  mutable Mutex mutex_;
  int64_t total_ TUFT_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, int64_t> held_ TUFT_GUARDED_BY(mutex_);  // by who; no entry: nothing
};

}  // namespace tuft
