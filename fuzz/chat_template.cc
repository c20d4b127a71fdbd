// Parses chat templates, which come with base models, and renders a conversation. The input is the template, a NUL
// byte, and a message.
#include "chat/chat_template.h"

#include <string>

#include <nlohmann/json.hpp>

#include "target.h"

namespace chat = tuft::chat;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = tuft::fuzz::text_of(data, size);
  const size_t end = input.find('\0');
  const auto parsed = chat::ChatTemplate::parse(input.substr(0, end));
  if (!parsed.ok()) {
    tuft::fuzz::require(!parsed.error().message.empty());
    return 0;
  }
  nlohmann::ordered_json message = {{"role", "user"}, {"content", "hello"}};
  if (end != std::string_view::npos) message["content"] = std::string(input.substr(end + 1));
  const auto messages = nlohmann::ordered_json::array({std::move(message)});
  chat::RenderOptions options;
  options.limits.steps = 200'000;  // the default takes this instrumented code many seconds
  (void)parsed->render(messages, options);
  return 0;
}
