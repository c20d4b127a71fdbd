// Types of the OpenAI API that need no JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::openai {

enum class Endpoint : uint8_t { kCompletions, kChat };
std::string_view endpoint_name(Endpoint endpoint);  // "completions", "chat/completions"

// The body of an answer that is made while it is read. Its destruction, after the last piece or a disconnect, ends the
// generation.
class EventStream {
 public:
  virtual ~EventStream() = default;
  // Produces the next events, or the next piece of JSON; an empty text is the end. The caller waits for `done` before
  // it calls next() again. `done` is called once, on any thread.
  virtual void next(std::function<void(Result<std::string>)> done) = 0;
};

struct Reply {
  int status = 200;
  std::string body;                     // JSON
  std::shared_ptr<EventStream> events;  // if set, it replaces the body: text/event-stream, or JSON in pieces
  bool is_json = true;                  // false: the events are text/event-stream
};
using ReplyDone = std::function<void(Reply)>;

}  // namespace tuft::openai
