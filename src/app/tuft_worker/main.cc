#include <cstdio>
#include <exception>

#include "app/tuft_worker/options.h"
#include "app/tuft_worker/serve.h"
#include "engine/init_model.h"

namespace {

int report(const char* program, const tuft::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", program, status.error().message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using tuft::app::Command;
  try {
    const Command command = tuft::app::parse_command(argc, argv);
    switch (command.kind) {
      case Command::Kind::kServe:
        return report("tuft-worker", tuft::app::serve(command.worker));
      case Command::Kind::kInitModel:
        return report("tuft init-model",
                      tuft::engine::init_model(command.init_model.directory, command.init_model.options));
      case Command::Kind::kExit:
        return command.exit_code;
    }
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "tuft-worker: %s\n", exception.what());
  }
  return 1;
}
