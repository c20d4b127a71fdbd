// The command line of tuft.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/tuft/hash_key.h"
#include "app/tuft/launch.h"
#include "app/tuft/state_store.h"
#include "app/tuft/terminal/command_line.h"
#include "app/tuft/worker_command.h"
#include "config/config.h"
#include "config/nearest.h"

namespace {

constexpr int kUsageError = 2;

// Runs tuft-worker with the same flags, because this program does not link the engine.
int init_model(int argc, char** argv) {
  const auto worker = tuft::app::worker_executable();
  if (!worker.ok()) {
    std::fprintf(stderr, "tuft init-model: %s\n", worker.error().message.c_str());
    return 1;
  }
  std::vector<char*> arguments(argv + 1, argv + argc);
  std::string name = worker->string();
  arguments.insert(arguments.begin(), name.data());
  arguments.push_back(nullptr);
  ::execv(name.c_str(), arguments.data());
  std::fprintf(stderr, "tuft init-model: cannot run %s: %s\n", name.c_str(), std::strerror(errno));
  return 1;
}

int clear_persistence(const tuft::config::Overrides& overrides, bool force) {
  const auto loaded = tuft::config::load_config(overrides);
  if (!loaded.ok()) {
    std::fprintf(stderr, "tuft clear persistence: %s\n", loaded.error().message.c_str());
    return 1;
  }
  return tuft::app::clear_persistence(loaded->config, force);
}

// Adds the flag of all commands that read the configuration.
void add_config_flag(CLI::App& command, tuft::config::Overrides& overrides) {
  command.add_option("-c,--config", overrides.config_path,
                     "configuration file [TUFT_CONFIG; $TUFT_HOME/configs/tuft_config.yaml]");
}

void add_launch_flags(CLI::App& command, tuft::app::LaunchOptions& options) {
  add_config_flag(command, options.overrides);
  command.add_option("--host", options.overrides.host, "address to listen on [TUFT_HOST; 127.0.0.1]");
  command.add_option("-p,--port", options.overrides.port, "port to listen on; 0: any free port [TUFT_PORT; 10610]")
      ->check(CLI::Range(0, 65535));
  command.add_option("--log-level", options.overrides.log_level,
                     "debug, info, warning or error [TUFT_LOG_LEVEL; info]");
  command.add_option("--log-format", options.overrides.log_format, "text or json [TUFT_LOG_FORMAT; text]")
      ->check(CLI::IsMember({"text", "json"}));
  command.add_option("--checkpoint-dir", options.overrides.checkpoint_dir,
                     "directory of the checkpoints [TUFT_CHECKPOINT_DIR; $TUFT_HOME/checkpoints]");
  command.add_flag("--trace-enable", options.overrides.trace_enable, "record and export traces [TRACES_ENABLE; off]");
  command.add_option("--otlp-traces-endpoint", options.overrides.otlp_traces_endpoint,
                     "collector that receives traces, e.g. http://localhost:4317 [telemetry.traces.endpoint]");
  command.add_flag("--reload", options.reload, "accepted for compatibility; has no effect");
}

// Returns true if `word` is a command or a flag. Otherwise says which command may be meant.
bool check_word(const CLI::App& app, std::string_view word) {
  if (word.starts_with('-')) return true;
  std::vector<std::string_view> known;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return true;
    known.push_back(command->get_name());
  }
  const std::string_view nearest = tuft::config::nearest_word(word, known);
  std::cerr << "tuft: there is no command '" << word << "'";
  if (!nearest.empty()) std::cerr << "; did you mean '" << nearest << "'?";
  std::cerr << "\nRun with --help for more information.\n";
  return false;
}

// Returns false, and says where a key belongs, if one was given as a flag.
bool check_flags(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string advice = tuft::terminal::advice_on_key_flag(argv[i]);
    if (advice.empty()) continue;
    std::cerr << "tuft " << argv[1] << ": " << advice << "\n";
    return false;
  }
  return true;
}

int run(int argc, char** argv) {
  CLI::App app("Multi-tenant LoRA fine-tuning and sampling server for the Tinker SDK", "tuft");
  app.set_version_flag("--version", "tuft " TUFT_VERSION);
  app.require_subcommand(1);

  tuft::app::LaunchOptions options;
  CLI::App* const launch = app.add_subcommand("launch", "start the server");
  add_launch_flags(*launch, options);

  app.add_subcommand("init-model", "write a small randomly initialised model directory (--help lists its flags)");

  CLI::App* const clear = app.add_subcommand("clear", "delete state of the server");
  clear->require_subcommand(1);
  CLI::App* const persistence = clear->add_subcommand(
      "persistence", "delete the records of sessions, training runs and results; checkpoints are kept");
  add_config_flag(*persistence, options.overrides);
  bool force = false;
  persistence->add_flag("-f,--force", force, "do not ask for confirmation");

  CLI::App* const hash =
      app.add_subcommand("hash-key", "read an API key from the standard input and print its hash for authorized_users");
  bool is_new = false;
  hash->add_flag("--new", is_new, "make a random key and print the key and its hash");

  std::function<int()> terminal_command;
  tuft::terminal::add_commands(app, tuft::config::home_directory(), TUFT_VERSION, terminal_command);

  if (argc < 2) {
    std::cerr << app.help();
    return kUsageError;
  }
  if (!check_word(app, argv[1]) || !check_flags(argc, argv)) return kUsageError;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  if (terminal_command) return terminal_command();
  if (hash->parsed()) return tuft::app::hash_key(is_new, std::cin, std::cout, std::cerr);
  if (persistence->parsed()) return clear_persistence(options.overrides, force);
  return tuft::app::launch(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "init-model") == 0) return init_model(argc, argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuft: %s\n", error.what());
    return 1;
  }
}
