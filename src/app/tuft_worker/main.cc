#include <csignal>
#include <cstdio>
#include <exception>

#include "app/tuft_worker/joined.h"
#include "app/tuft_worker/options.h"
#include "app/tuft_worker/serve.h"
#include "engine/init_model.h"

namespace {

int init_model(const tuft::app::InitModelFlags& flags) {
  const tuft::Status status = tuft::engine::init_model(flags.directory, flags.options);
  if (!status.ok()) {
    std::fprintf(stderr, "tuft init-model: %s\n", status.error().message.c_str());
    return 1;
  }
  std::printf("wrote a base model with random weights to %s\n", flags.directory.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using tuft::app::Command;
  std::signal(SIGPIPE, SIG_IGN);  // the log's reader may end before this process
  try {
    const Command command = tuft::app::parse_command(argc, argv);
    switch (command.kind) {
      case Command::Kind::kServe:
        return command.worker.join.address.empty() ? tuft::app::serve(command.worker)
                                                   : tuft::app::serve_joined(command.worker, command.arguments);
      case Command::Kind::kInitModel:
        return init_model(command.init_model);
      case Command::Kind::kExit:
        return command.exit_code;
    }
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "tuft-worker: %s\n", exception.what());
  }
  return 1;
}
