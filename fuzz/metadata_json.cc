// Parses the metadata.json of a checkpoint.
#include <string>

#include "control/types/checkpoint.h"
#include "target.h"

namespace control = tuft::control;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto checkpoint = control::from_metadata_json(tuft::fuzz::text_of(data, size));
  if (!checkpoint.ok()) return 0;
  const std::string written = control::to_metadata_json(*checkpoint);
  const auto again = control::from_metadata_json(written);
  tuft::fuzz::require(again.ok() && control::to_metadata_json(*again) == written);
  return 0;
}
