// Opens the persistent store of the configuration. Only this file names the kinds of stores.
#pragma once

#include <memory>

#include "base/result.h"
#include "config/config.h"
#include "control/persistence/persistence.h"
#include "store/key_value.h"

namespace tuft::app {

// Opens the store; null if persistence.mode is DISABLE. Blocks until the store answers. An error names the store and
// the cure.
Result<std::unique_ptr<store::KeyValue>> open_state_store(const config::PersistenceConfig& config);

// Opens the store, and reads and checks its contents; null if persistence.mode is DISABLE.
Result<std::unique_ptr<control::Persistence>> open_persistence(const config::ServerConfig& config);

// `tuft clear persistence`: asks for confirmation unless `force`, removes the records of the namespace, and prints
// their number. Returns the exit status.
int clear_persistence(const config::ServerConfig& config, bool force);

}  // namespace tuft::app
