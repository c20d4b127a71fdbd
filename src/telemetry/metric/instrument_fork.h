// Handles the locks of all instruments at a fork(), so that no lock stays locked in the child. Internal to telemetry.
#pragma once

#include "base/mutex.h"

namespace tuft::telemetry::internal {

void lock_instruments();
void unlock_instruments();
// Unlocks. Sets every value to zero, because the counts are the parent's, and removes the callbacks, because they read
// state that only the parent's threads update.
void reset_instruments_in_child();

}  // namespace tuft::telemetry::internal
