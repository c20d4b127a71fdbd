// Parses tinker:// paths and checkpoint names, which become paths of the file system.
#include "control/types/checkpoint_path.h"

#include "target.h"

namespace control = tuft::control;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = tuft::fuzz::text_of(data, size);
  if (const auto path = control::parse_checkpoint_path(text); path.ok()) {
    tuft::fuzz::require(control::check_checkpoint_name(path->name).ok());
    tuft::fuzz::require(path->str() == text);
    const std::string folder = control::run_folder(path->run);
    tuft::fuzz::require(!folder.empty() && folder.front() != '.' && folder.find('/') == std::string::npos);
  }
  if (control::check_checkpoint_name(text).ok()) {
    tuft::fuzz::require(text.find_first_of(std::string_view("/\\\0:", 4)) == std::string_view::npos);
    tuft::fuzz::require(text.front() != '.');
  }
  return 0;
}
