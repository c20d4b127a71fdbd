// Parses the bodies of the OpenAI-compatible routes.
#include "openai/request.h"
#include "target.h"

namespace openai = tuft::openai;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const openai::Endpoint endpoint : {openai::Endpoint::kCompletions, openai::Endpoint::kChat}) {
    openai::Problem problem;
    const openai::Request request = openai::read_request(endpoint, tuft::fuzz::text_of(data, size), problem);
    if (!problem.status.ok()) continue;
    tuft::fuzz::require(request.choices >= 1 && request.choices <= openai::kChoicesMax);
    tuft::fuzz::require(request.stops.size() <= static_cast<size_t>(openai::kStopsMax));
  }
  return 0;
}
