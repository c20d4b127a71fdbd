// Runs a worker that joins a server of another machine.
#pragma once

#include <string>
#include <vector>

#include "app/tuft_worker/options.h"

namespace tuft::app {

// Joins, reads the weights and serves. When the connection ends, it joins again, and keeps its adapters for as long as
// the server has said. After SIGTERM or SIGINT it returns 0: once the server has saved what it holds, or at once if it
// holds nothing, or if its connection was closed in order; if the connection broke, it joins again for that. It waits
// for --drain-seconds at most. Returns 1 if the server refuses the worker for good, or the model cannot be served; the
// log then says why. `arguments` is its command line.
int serve_joined(const WorkerFlags& flags, const std::vector<std::string>& arguments);

}  // namespace tuft::app
