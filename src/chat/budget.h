// Counts what one rendering uses of its limits. Every loop and every new value is charged here, so that no template and
// no conversation can block the server or exhaust its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "chat/chat_template.h"

namespace tuft::chat {

// Not thread-safe.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits) {}

  Status step(size_t count = 1) {
    steps_ += count;
    if (steps_ > static_cast<size_t>(limits_.steps)) return exceeded("steps");
    return {};
  }
  // Charges the time to read `bytes`.
  Status scan(size_t bytes) { return step(1 + bytes / 64); }
  // Charges a new value of `bytes`. Call it before making a value that is larger than its sources.
  Status allocate(size_t bytes) {
    if (bytes > limits_.memory_bytes - memory_) return exceeded("memory");
    memory_ += bytes;
    return scan(bytes);
  }
  Status check_output(size_t bytes) const {
    if (bytes > limits_.output_bytes) return exceeded("length of the text");
    return {};
  }

  // Counts one level of nested expressions, statements or macros as long as it lives.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) { ++budget_.depth_; }
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

    Status check() const {
      if (budget_.depth_ > budget_.limits_.depth) return exceeded("depth");
      return budget_.step();
    }

   private:
    Budget& budget_;
  };

 private:
  static Error exceeded(const char* what) {
    return {ErrorCode::kResourceExhausted, std::string("the chat template exceeds the limit of its ") + what,
            "template_limit"};
  }

  RenderLimits limits_;
  size_t steps_ = 0;
  size_t memory_ = 0;
  int depth_ = 0;
};

}  // namespace tuft::chat
