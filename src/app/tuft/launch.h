// `tuft launch`: reads the configuration, starts the workers, serves until SIGINT or SIGTERM.
#pragma once

#include "config/config.h"

namespace tuft::app {

struct LaunchOptions {
  config::Overrides overrides;
  bool reload = false;  // taken for TuFT's scripts
};

// The exit status: 0 after a signal, 1 where the start failed (the reason is on stderr), 2 where there is no
// configuration to start with. After a signal it returns within 5 s, whatever clients, workers and collectors do.
int launch(const LaunchOptions& options);

}  // namespace tuft::app
