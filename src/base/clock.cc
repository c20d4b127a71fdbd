#include "base/clock.h"

#include <chrono>

namespace tuft {
namespace {

class SystemClock final : public Clock {
 public:
  Nanos monotonic() const override {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  Nanos wall() const override {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace tuft
