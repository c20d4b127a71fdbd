#include "rpc/protobuf_log.h"

#include <atomic>
#include <string>

#include <google/protobuf/stubs/logging.h>

#include "base/clock.h"

namespace tuft::rpc {
namespace {

std::atomic<void (*)(std::string_view)> taker = nullptr;
std::atomic<Nanos> last_taken = -kSecond;

void pass_on(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  const Nanos now = system_clock().monotonic();
  Nanos last = last_taken.load(std::memory_order_relaxed);
  if (now - last < kSecond || !last_taken.compare_exchange_strong(last, now)) return;
  if (const auto take = taker.load()) take(message);
}

}  // namespace

void take_protobuf_log(void (*take)(std::string_view message)) {
  taker = take;
  google::protobuf::SetLogHandler(pass_on);
}

}  // namespace tuft::rpc
