// Parses JSON bodies: the batches of SDK 0.18 to 0.24, and the getters of all other handlers.
#include <string>
#include <vector>

#include "api/json/json_datum.h"
#include "api/json/json_reader.h"
#include "target.h"

namespace api = tuft::api;

namespace {

void read_everything(const api::JsonFields& fields, int depth) {
  fields.string("type", "");
  fields.required_string("type");
  fields.required_id("model_id");
  fields.required_integer("seq_id", 1, 100);
  fields.optional_integer("seq_id");
  fields.optional_bits("seed");
  fields.number("learning_rate", 1);
  fields.boolean("return_path", false);
  fields.string_map("user_metadata");
  fields.only({"type", "data"});
  fields.string_list("stop");
  std::vector<int32_t> tokens;
  if (const auto input = fields.object("prompt")) (void)api::read_tokens(*input, tokens);
  for (const int32_t token : tokens) tuft::fuzz::require(token >= 0);
  if (depth == 0) return;
  fields.for_each_object("data", true, [&](const api::JsonFields& inner) { read_everything(inner, depth - 1); });
  fields.for_each_member([&](std::string_view, const api::JsonFields& inner) { read_everything(inner, depth - 1); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(tuft::fuzz::text_of(data, size));
  {
    api::JsonBody body(text);
    read_everything(body.fields(), 2);
    (void)body.status();
  }
  std::string pass(tuft::fuzz::text_of(data, size));
  tinker_public::ForwardBackwardRequest request;
  (void)api::read_forward_backward(pass, api::PassField::kForwardBackward, request);
  pass = tuft::fuzz::text_of(data, size);
  request.Clear();
  (void)api::read_forward_backward(pass, api::PassField::kForward, request);
  return 0;
}
