// `tuft launch`: reads the configuration, starts the workers, and serves until SIGINT or SIGTERM.
#pragma once

#include "config/config.h"

namespace tuft::app {

struct LaunchOptions {
  config::Overrides overrides;
  bool reload = false;  // accepted for TuFT's scripts; has no effect
};

// Returns the exit status: 0 after a signal, 1 if the start failed (the reason is on stderr), 2 if there is no
// configuration. After a signal it returns within 5 s, whatever clients, workers and collectors do.
int launch(const LaunchOptions& options);

}  // namespace tuft::app
