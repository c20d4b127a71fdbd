// Memory that many hold a part of, counted by who: with a most for each of them and for all together.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

namespace tuft {

// Thread-safe. Its lock is innermost. Made by std::make_shared: a Hold may outlive everybody else who knows it.
class ByteAccount : public std::enable_shared_from_this<ByteAccount> {
 public:
  struct Most {
    int64_t each = std::numeric_limits<int64_t>::max();
    int64_t all = std::numeric_limits<int64_t>::max();
  };
  enum class Answer : uint8_t {
    kTaken,
    kOverEach,  // whoever asks would hold more than `each`
    kOverAll,   // all together would hold more than `all`
  };

  // A part of the memory; given back when it is destroyed. Not thread-safe by itself.
  class Hold {
   public:
    Hold() = default;  // holds nothing and cannot grow
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { shrink_to(0); }

    // Holds at least so many bytes from now on, or as many as before.
    Answer grow_to(int64_t bytes, const Most& most);
    // Holds at most so many from now on.
    void shrink_to(int64_t bytes);
    int64_t bytes() const { return bytes_; }

   private:
    friend class ByteAccount;
    Hold(std::shared_ptr<ByteAccount> account, std::string who) : account_(std::move(account)), who_(std::move(who)) {}

    std::shared_ptr<ByteAccount> account_;
    std::string who_;
    int64_t bytes_ = 0;
  };

  // Nothing yet, for `who`.
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
