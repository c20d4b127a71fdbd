// Runs a worker that joins a server of another machine.
#pragma once

#include <string>
#include <vector>

#include "app/tuft_worker/options.h"

namespace tuft::app {

// Joins, reads the weights and serves. When the connection ends, it joins again: its adapters are given up then, and
// the server loads them anew, here or in another worker. Returns after SIGTERM or SIGINT with 0, and with 1 if the
// server refuses the worker for good, or the model cannot be served; the log then says why. `arguments` is its command
// line.
int serve_joined(const WorkerFlags& flags, const std::vector<std::string>& arguments);

}  // namespace tuft::app
