// Instruments and fork(): their locks are taken before it, so that none is left locked in the child. Internal to
// telemetry.
#pragma once

#include "base/mutex.h"

namespace tuft::telemetry::internal {

void lock_instruments();
void unlock_instruments();
// Also unlocks. Every value starts at zero: what was counted before is the parent's. Callbacks are forgotten, for they
// look at what only the parent's threads keep up to date.
void reset_instruments_in_child();

}  // namespace tuft::telemetry::internal
