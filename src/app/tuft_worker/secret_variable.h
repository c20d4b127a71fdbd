// Environment variables in which a server passes secrets to a worker that it starts.
#pragma once

#include <string>

namespace tuft::app {

// Returns the value, or nothing, and removes the variable. Call it before other threads read the environment.
std::string take_variable(const char* name);

}  // namespace tuft::app
