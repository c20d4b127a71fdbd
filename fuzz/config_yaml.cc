// The configuration file. Whoever writes it runs the server; it shall not crash on a slip.
#include "config/config.h"
#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto loaded = tuft::config::parse_config(tuft::fuzz::text_of(data, size), "config.yaml");
  if (!loaded.ok()) tuft::fuzz::require(!loaded.error().message.empty());
  return 0;
}
