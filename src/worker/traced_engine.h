// An Engine that measures another one: spans engine.forward and engine.backward under the current one, and training's
// share of tuft.scheduler.*. Everything else goes straight through. What is counted per request - tokens, losses,
// norms - the control plane counts.
#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/engine.h"

namespace tuft::worker {

// Both outlive the result.
std::unique_ptr<engine::Engine> make_traced_engine(engine::Engine& engine, const Clock& clock);

}  // namespace tuft::worker
