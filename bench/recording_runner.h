// The common parts of programs that record telemetry for a benchmark: the loop that answers lines of JSON, clocks, and
// a count of the allocations of the recording thread.
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

// Returns the heap allocations of the calling thread so far (operator new, without malloc of C libraries).
uint64_t allocations();

struct Recorder {
  // Each is called once per iteration, with the number of the iteration.
  std::map<std::string, std::function<void(int64_t)>> operations;
  // Called between bursts, outside the measured time: waits until all records have left the process.
  std::function<void()> drain;
  std::function<void()> close;
};

// Serves stdin until its end. `make` starts telemetry with the collector in argv[1].
int run_recorder(int argc, char** argv, const std::function<Recorder(const std::string& endpoint)>& make);

}  // namespace tuft::bench
