// What the programs that record telemetry for a benchmark share: the loop that answers lines of JSON, clocks, and a
// count of what the recording thread allocates.
//
// {"op": "span", "count": 30000} -> {"seconds": .., "operations": .., "allocations": ..}
// {"op": "pace", "rate": 10000, "seconds": 5} -> spans at a steady rate: {"cpu_seconds": of the process,
//   "recording_cpu_seconds": of the thread that records, "operations": ..}
// {"op": "close"} -> exports what is left
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace tuft::bench {

// Heap allocations of the calling thread so far (operator new; malloc of C libraries is not seen).
uint64_t allocations();

struct Recorder {
  // Each called once an iteration, with its number.
  std::map<std::string, std::function<void(int64_t)>> operations;
  // Between bursts, outside the measured time: waits until what was recorded has left the process.
  std::function<void()> drain;
  std::function<void()> close;
};

// Serves stdin until it ends. `make` starts telemetry, to the collector in argv[1].
int run_recorder(int argc, char** argv, const std::function<Recorder(const std::string& endpoint)>& make);

}  // namespace tuft::bench
