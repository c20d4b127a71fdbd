// Reads tokenizer.json files, which come with base models, and encodes with what was read. The input is the file, a NUL
// byte, and a text.
#include <string>

#include "target.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = tuft::fuzz::text_of(data, size);
  const size_t end = input.find('\0');
  const auto tokenizer = tuft::tokenizer::Tokenizer::parse(input.substr(0, end), "tokenizer.json");
  if (!tokenizer.ok()) {
    tuft::fuzz::require(!tokenizer.error().message.empty());
    return 0;
  }
  const auto tokens = tokenizer->encode(end == std::string_view::npos ? "a text" : input.substr(end + 1));
  if (tokens.ok()) (void)tokenizer->decode(*tokens);
  return 0;
}
