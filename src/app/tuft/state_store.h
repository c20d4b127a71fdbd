// Opens the persistent store of the configuration. Only this file names the kinds of stores.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "config/config.h"
#include "control/persistence/persistence.h"
#include "store/key_value.h"
#include "store/leadership.h"

namespace tuft::app {

// Returns what decides which server leads; null if the store is not shared by servers, so that this one leads.
// `on_lost` is that of store::Leadership::Options.
Result<std::unique_ptr<store::Leadership>> make_leadership(const config::ServerConfig& config,
                                                           std::function<void(store::LeaderLoss)> on_lost);

// Returns the address of this server for clients and for the others: persistence.advertise, or host and port.
std::string advertised_address(const config::ServerConfig& config, uint16_t port);

// Opens the store, and reads and checks its contents; null if persistence.mode is DISABLE. Blocks until the store
// answers. An error names the store and the cure. `leadership` is null, or that of a server that leads.
Result<std::unique_ptr<control::Persistence>> open_persistence(const config::ServerConfig& config,
                                                               store::Leadership* leadership);
// Does the same for a server that stands by (control::Persistence::open_view).
Result<std::unique_ptr<control::Persistence>> open_view(const config::ServerConfig& config,
                                                        const std::stop_token& stop);

// `tuft clear persistence`: asks for confirmation unless `force`, removes the records of the namespace, and prints
// their number. A server that uses the namespace must have been stopped. Returns the exit status.
int clear_persistence(const config::ServerConfig& config, bool force);

}  // namespace tuft::app
