// The persistent store that the configuration asks for: here, and nowhere else, its kinds are named.
#pragma once

#include <memory>

#include "base/result.h"
#include "config/config.h"
#include "control/persistence.h"
#include "store/key_value.h"

namespace tuft::app {

// Null where persistence.mode is DISABLE. Blocks until it answers; the error names the store and the cure.
Result<std::unique_ptr<store::KeyValue>> open_state_store(const config::PersistenceConfig& config);

// The same, with what it holds read and checked. Null where persistence.mode is DISABLE.
Result<std::unique_ptr<control::Persistence>> open_persistence(const config::ServerConfig& config);

// `tuft clear persistence`: asks on the terminal unless `force`, removes the records of the namespace, and says how
// many. The exit status.
int clear_persistence(const config::ServerConfig& config, bool force);

}  // namespace tuft::app
