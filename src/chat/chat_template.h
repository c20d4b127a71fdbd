// Renders the chat templates of Hugging Face models: turns a conversation into the text that the model reads. The
// result is that of apply_chat_template in transformers (Jinja2 in an immutable sandbox, with trim_blocks,
// lstrip_blocks and loop controls).
//
// The language is the subset of Jinja2 that published templates use (docs/adr/0013-chat-templates.md):
//
//   text         {{ }}, {% %}, {# #}, each with - and +
//   statements   if, elif, else; for with a filter, else, several names, break, continue and loop.first, last, index,
//                index0, length, revindex, revindex0, previtem, nextitem; set of a name or an attribute of a namespace,
//                with a value or a block; macro, call, filter, generation
//   expressions  decimal numbers, strings, lists, tuples, dicts with strings and integers as keys; + - * / // % ~,
//                chained comparisons, in, not in, is, and, or, not, inline if, subscripts, slices, calls
//   filters      capitalize count d default dictsort first indent int items join last length list lower map reject
//                rejectattr replace reverse safe select selectattr sort string title tojson trim unique upper
//   tests        boolean defined false float in integer iterable mapping none number sequence string true undefined,
//                and comparisons by their names and signs
//   functions    dict namespace raise_exception range strftime_now
//   methods      of strings: capitalize endswith lower lstrip replace rstrip split startswith strip title upper;
//                of dicts: get items keys values
//
// Parsing refuses any other tag, filter, test, method or operator, with its name and line, so that an unsupported
// template is known when the model is loaded. The few things that depend on a value are refused when they are rendered.
//
// Values behave as in Python: they print alike (True, None, 1.0, ['a']), undefined names print nothing and fail when
// they are used otherwise, and strings are counted in code points. Integers have 64 bits; a larger result is an error.
// Case mappings follow utf8proc and map one character to one character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::chat {

// The limits of one rendering. Exceeding one returns kResourceExhausted.
struct RenderLimits {
  size_t output_bytes = size_t{16} << 20;
  size_t memory_bytes = size_t{512} << 20;  // of all values made, including those already freed
  int64_t steps = 5'000'000;                // expressions, statements and items visited
  int depth = 400;                          // of nested expressions, statements and macros
};

struct RenderOptions {
  // Ends the text with the start of the model's answer.
  bool add_generation_prompt = false;
  // The lists of the request; null: none, which a template sees as None. They must outlive the rendering.
  const nlohmann::ordered_json* tools = nullptr;
  const nlohmann::ordered_json* documents = nullptr;
  // Maps names to texts, for example "bos_token" -> "<s>". A token that the model does not have is left out, not "".
  std::map<std::string, std::string, std::less<>> special_tokens;
  // An object with further names, such as enable_thinking; null: none. They override all names above.
  const nlohmann::ordered_json* variables = nullptr;
  // The time that strftime_now formats in UTC, since 1970.
  Nanos now = 0;
  RenderLimits limits;
};

namespace ast {
struct Template;
}

// Immutable and thread-safe. Copies share the parsed template.
class ChatTemplate {
 public:
  // Returns kInvalidArgument for a syntax error and kUnimplemented for a construct outside the subset. Both messages
  // name the line.
  static Result<ChatTemplate> parse(std::string_view source);

  // Renders `messages`, a list of objects with "role", "content" and whatever else the template reads. Returns
  //   kInvalidArgument    reason "template_raised": the template called raise_exception; the message is its text.
  //                       reason "template_failed": the template does not work on this conversation.
  //   kUnimplemented      reason "template_unsupported": rendering needs something outside the subset.
  //   kResourceExhausted  reason "template_limit": a limit is exceeded.
  // The message of "template_raised" can quote the conversation: return it to the caller, but never log it.
  Result<std::string> render(const nlohmann::ordered_json& messages, const RenderOptions& options) const;

  // Returns whether an expression of the template reads this name, for example "tools".
  bool uses(std::string_view variable) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const ast::Template> root);

  std::shared_ptr<const ast::Template> root_;
};

}  // namespace tuft::chat
