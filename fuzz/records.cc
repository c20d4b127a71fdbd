// Parses the records of the persistent store. What is read is written in the same form again and again.
#include "control/persistence/records.h"

#include <string>

#include <nlohmann/json.hpp>

#include "target.h"

namespace control = tuft::control;

namespace {

template <typename Record>
void check(tuft::Result<Record> (*from_json)(std::string_view), std::string_view text) {
  const auto record = from_json(text);
  if (!record.ok()) return;
  const std::string written = control::to_json(*record);
  const auto again = from_json(written);
  tuft::fuzz::require(again.ok() && control::to_json(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = tuft::fuzz::text_of(data, size);
  check(&control::session_from_json, text);
  if (!nlohmann::json::accept(text)) return 0;  // all say the same about it, and slowly: their parser throws
  check(&control::run_from_json, text);
  check(&control::run_metadata_from_json, text);
  check(&control::sampler_from_json, text);
  check(&control::future_from_json, text);
  return 0;
}
