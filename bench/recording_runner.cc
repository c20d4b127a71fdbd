#include "recording_runner.h"

#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

namespace tuft::bench {
namespace {

using nlohmann::json;

// Fewer than any queue or ring holds, so that recording is measured and not dropping.
constexpr int64_t kBurst = 1500;

double cpu_clock(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double now() {
  return cpu_clock(CLOCK_MONOTONIC);
}

json measure(const Recorder& recorder, const std::function<void(int64_t)>& record, int64_t count) {
  double seconds = 0;
  uint64_t allocated = 0;
  int64_t done = 0;
  while (done < count) {
    recorder.drain();
    const uint64_t allocated_before = allocations();
    const double begin = now();
    for (int64_t i = 0; i < kBurst; ++i) record(done + i);
    seconds += now() - begin;
    allocated += allocations() - allocated_before;
    done += kBurst;
  }
  return {{"seconds", seconds}, {"operations", done}, {"allocations", allocated}};
}

json pace(const Recorder& recorder, double rate, double seconds) {
  constexpr auto kTick = std::chrono::milliseconds(10);
  const auto& record = recorder.operations.at("span");
  const auto per_tick = static_cast<int64_t>(rate / 100);
  recorder.drain();
  const double process = cpu_clock(CLOCK_PROCESS_CPUTIME_ID);
  const double thread = cpu_clock(CLOCK_THREAD_CPUTIME_ID);
  const double end = now() + seconds;
  auto next = std::chrono::steady_clock::now();
  int64_t done = 0;
  while (now() < end) {
    for (int64_t i = 0; i < per_tick; ++i) record(done++);
    next += kTick;
    std::this_thread::sleep_until(next);
  }
  const double recording = cpu_clock(CLOCK_THREAD_CPUTIME_ID) - thread;
  recorder.drain();
  return {{"cpu_seconds", cpu_clock(CLOCK_PROCESS_CPUTIME_ID) - process},
          {"recording_cpu_seconds", recording},
          {"operations", done}};
}

json answer(const Recorder& recorder, const json& asked) {
  const std::string operation = asked.at("op");
  if (operation == "pace") return pace(recorder, asked.at("rate"), asked.at("seconds"));
  if (operation == "close") {
    recorder.close();
    return json::object();
  }
  const auto found = recorder.operations.find(operation);
  if (found == recorder.operations.end()) return {{"error", "no operation " + operation}};
  return measure(recorder, found->second, asked.at("count"));
}

}  // namespace

int run_recorder(int argc, char** argv, const std::function<Recorder(const std::string&)>& make) {
  if (argc != 2) {
    std::cerr << argv[0] << " ENDPOINT\n";
    return 2;
  }
  try {
    const Recorder recorder = make(argv[1]);
    for (std::string line; std::getline(std::cin, line);)
      std::cout << answer(recorder, json::parse(line)).dump() << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace tuft::bench
