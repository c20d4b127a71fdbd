// Parses the bodies of the OpenAI-compatible routes.
#include "openai/json_tree.h"
#include "openai/request.h"
#include "target.h"

namespace openai = tuft::openai;

namespace {

// The reader of JSON is ours; the tree that it makes is nlohmann's. The size is limited because nlohmann's time grows
// with the square of an object's members.
void compare_with_nlohmann(std::string_view text) {
  if (text.size() > 4096) return;
  const auto ours = openai::parse_json(text);
  const auto theirs = openai::Json::parse(text, nullptr, /*allow_exceptions=*/false);
  tuft::fuzz::require(ours.has_value() == !theirs.is_discarded());
  if (ours) tuft::fuzz::require(*ours == theirs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  compare_with_nlohmann(tuft::fuzz::text_of(data, size));
  for (const openai::Endpoint endpoint : {openai::Endpoint::kCompletions, openai::Endpoint::kChat}) {
    openai::Problem problem;
    const openai::Request request = openai::read_request(endpoint, tuft::fuzz::text_of(data, size), problem);
    if (!problem.status.ok()) continue;
    tuft::fuzz::require(request.choices >= 1 && request.choices <= openai::kChoicesMax);
    tuft::fuzz::require(request.stops.size() <= static_cast<size_t>(openai::kStopsMax));
  }
  return 0;
}
