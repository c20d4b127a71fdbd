// tuft_store_bench memory|file PATH|redis URL|fenced URL: writes through the server's store classes, one line of JSON
// in and one out. {"op": "write", "count": 5000, "in_flight": 64, "bytes": 1000} -> {"seconds": .., "operations": ..,
// "p50_us":
// .., "p99_us": ..}; {"op": "scan"} -> {"seconds": .., "operations": entries}.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "store/key_value.h"
#include "store/leadership.h"
#include "store/memory_store.h"
#include "store/redis/redis_lease.h"
#include "store/redis/redis_store.h"
#include "store/redis/redis_url.h"
#include "store/sqlite/sqlite_store.h"

namespace tuft::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Result<std::unique_ptr<store::KeyValue>> open(const std::string& kind, const std::string& where) {
  if (kind == "memory") return store::make_memory_store(std::make_shared<store::MemoryContents>());
  if (kind == "file") return store::open_sqlite_store(where);
  TUFT_ASSIGN(const store::RedisUrl url, store::parse_redis_url(where));
  if (kind != "fenced") return store::open_redis_store(url);
  const auto lease = store::make_redis_lease(url, {.name_space = "bench"});
  TUFT_ASSIGN(const store::Lease::Standing standing, lease->take(kSecond, "here"));
  if (!standing.leads) return unavailable("another program has the lease; try again");
  return store::open_redis_store(url, {}, {}, store::Fence{lease->fence_key(), standing.token, [] {}});
}

// Keeps `in_flight` writes in progress, as the control plane does; counts a write when it is durable.
json write(store::KeyValue& store, size_t count, size_t in_flight, size_t bytes) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t running = 0;
  std::vector<double> latencies;
  std::string problem;
  const std::string value(bytes, 'v');
  static size_t next_key = 0;
  const auto begin = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return running < in_flight; });
      ++running;
    }
    const auto sent = Clock::now();
    store::Write one;
    one.changes.push_back({"bench::future::" + std::to_string(next_key++), value});
    const Status taken = store.write(std::move(one), [&, sent](const Status& status) {
      const double seconds = seconds_since(sent);
      const std::scoped_lock lock(mutex);
      if (!status.ok()) problem = status.error().message;
      latencies.push_back(1e6 * seconds);
      --running;
      changed.notify_one();
    });
    if (!taken.ok()) return {{"error", taken.error().message}};
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return running == 0; });
  const double seconds = seconds_since(begin);
  if (!problem.empty()) return {{"error", problem}};
  std::sort(latencies.begin(), latencies.end());
  return {{"seconds", seconds},
          {"operations", count},
          {"p50_us", latencies[latencies.size() / 2]},
          {"p99_us", latencies[latencies.size() * 99 / 100]}};
}

json scan(store::KeyValue& store) {
  const auto begin = Clock::now();
  const auto entries = store::scan_and_wait(store, {"bench::"});
  if (!entries.ok()) return {{"error", entries.error().message}};
  return {{"seconds", seconds_since(begin)}, {"operations", entries->size()}};
}

json answer(store::KeyValue& store, const json& asked) {
  const std::string operation = asked.at("op");
  if (operation == "write") return write(store, asked.at("count"), asked.at("in_flight"), asked.at("bytes"));
  if (operation == "scan") return scan(store);
  return {{"error", "no operation " + operation}};
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if (kind != "memory" && argc != 3) {
    std::cerr << "usage: tuft_store_bench memory | file PATH | redis URL | fenced URL\n";
    return 2;
  }
  auto store = tuft::bench::open(kind, argc > 2 ? argv[2] : "");
  if (!store.ok()) {
    std::cerr << store.error().message << '\n';
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << tuft::bench::answer(**store, nlohmann::json::parse(line)).dump() << std::endl;
  }
  return 0;
}
