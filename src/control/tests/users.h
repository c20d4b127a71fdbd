// Users of tests.
#pragma once

#include "control/types/types.h"

namespace tuft::control {

inline const UserId kAlice("alice");
inline const UserId kBob("bob");
inline const UserId kCarol("carol");

}  // namespace tuft::control
