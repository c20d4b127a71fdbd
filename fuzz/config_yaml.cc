// Parses the configuration file. Its author runs the server, but a mistake must not crash it.
#include "config/config.h"
#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto loaded = tuft::config::parse_config(tuft::fuzz::text_of(data, size), "config.yaml");
  if (!loaded.ok()) tuft::fuzz::require(!loaded.error().message.empty());
  return 0;
}
