// The flags of the commands of this folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>

namespace tuft::terminal {

// Adds top, traces, trace and logs to `app`. `home` finds a server on this machine. The chosen command is put into
// `chosen` when the command line is parsed; calling it runs the command and returns the exit status.
void add_commands(CLI::App& app, const std::filesystem::path& home, const std::string& version,
                  std::function<int()>& chosen);

// If `word` is a flag that people try for a key, returns where a key belongs; else "".
std::string advice_on_key_flag(std::string_view word);

}  // namespace tuft::terminal
