// What the commands share: opening the connection, and their errors.
#pragma once

#include <memory>

#include "app/tuft/terminal/commands.h"
#include "app/tuft/terminal/http_client.h"
#include "base/result.h"

namespace tuft::terminal {

// Finds the server and the key. Nothing is sent yet.
Result<std::unique_ptr<HttpClient>> open_client(const ServerOptions& options);
// Returns the address for titles; empty if it is wrong.
std::string address_text(const ServerOptions& options);

// Prints "tuft COMMAND: message" and returns the exit status.
int fail(const char* command, const Error& error);

}  // namespace tuft::terminal
