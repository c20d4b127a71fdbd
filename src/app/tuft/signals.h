// The signals of `tuft launch`: all threads block them, and the main thread asks for them.
#pragma once

#include "base/clock.h"

namespace tuft::app {

// To be called before any thread starts, so that all threads inherit the mask.
void take_over_signals();
// Returns whether SIGINT or SIGTERM has come, and takes it.
bool stop_requested();
// Waits for SIGINT, SIGTERM or SIGHUP and returns it; -1 if none has come within `limit`.
int next_signal(Nanos limit);
// Ends the process with `status` after `limit`, if a step of the shutdown hangs.
void limit_shutdown(Nanos limit, int status);

}  // namespace tuft::app
