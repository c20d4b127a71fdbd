// Chat templates of Hugging Face models: a conversation to the text that the model reads, as transformers'
// apply_chat_template does it (Jinja2 in its immutable sandbox, trim_blocks and lstrip_blocks on, loop controls).
//
// The language is the subset of Jinja2 that model templates use. Everything else is refused by name and line when the
// template is parsed, so that a model with such a template is known when it is loaded, not in a request:
//
//   text         {{ }}, {% %}, {# #} with - and +; {% raw %}
//   statements   if/elif/else; for with filter, else, unpacking, break, continue, loop.*; set of names, tuples,
//                attributes of namespaces and blocks; macro, call, filter, with, generation, print
//   expressions  literals of every kind, implicit concatenation, + - * / // % ** ~, comparisons and their chains, in,
//                not in, is, and/or/not, inline if, subscripts, slices with steps, calls with keyword arguments
//   filters      abs batch capitalize count d default dictsort first float indent int items join last
//                length list lower map max min reject rejectattr replace reverse round safe select selectattr sort
//                string sum title tojson trim unique upper
//   tests        boolean callable defined divisibleby even false float in integer iterable lower mapping none
//                number odd sameas sequence string true undefined upper, and comparisons by their names and signs
//   functions    dict namespace raise_exception range strftime_now
//   methods      of strings, dicts and lists, where they change nothing
//
//   refused      include, import, extends, block, autoescape, recursive loops, * and ** arguments, str.format
//
// Values behave as Python's do: they print alike (True, None, 1.0, ['a']), undefined names print nothing and fail when
// used, strings are counted in code points. Integers have 64 bits; beyond is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::chat {

// What one rendering may cost. A template or a conversation that wants more gets kResourceExhausted.
struct RenderLimits {
  size_t output_bytes = size_t{16} << 20;
  size_t memory_bytes = size_t{512} << 20;  // of all values made, those already dropped too
  int64_t steps = 5'000'000;                // expressions, statements and items looked at
  int depth = 400;                          // of expressions, statements and macros in each other
};

struct RenderOptions {
  // The text ends where the model's answer begins.
  bool add_generation_prompt = false;
  // Lists as the request has them, or null: the template then sees None.
  nlohmann::ordered_json tools;
  nlohmann::ordered_json documents;
  // "bos_token" -> "<s>", "eos_token", ... A token that the model does not have is left out, not empty.
  std::map<std::string, std::string, std::less<>> special_tokens;
  // An object: more names, such as enable_thinking. They win over every name above.
  nlohmann::ordered_json variables;
  // What strftime_now formats, in UTC, since 1970.
  Nanos now = 0;
  RenderLimits limits;
};

namespace ast {
struct Template;
}

// Immutable; thread-safe; copies share the parsed template.
class ChatTemplate {
 public:
  // kInvalidArgument for what is no Jinja, kUnimplemented for what is outside the subset; both say the line.
  static Result<ChatTemplate> parse(std::string_view source);

  // `messages`: a list of {"role", "content", ...}; content is a string or a list of parts, whatever the template
  // reads. kInvalidArgument: the template raised (reason "template_raised", the message is the template's own text)
  // or failed on this conversation ("template_failed"). kUnimplemented: something outside the subset that only shows
  // now. kResourceExhausted: a limit. A raised text may quote the conversation: it is for the caller, never for a log.
  Result<std::string> render(const nlohmann::ordered_json& messages, const RenderOptions& options) const;

  // Whether the template looks at the name anywhere, e.g. "tools".
  bool uses(std::string_view variable) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const ast::Template> root);

  std::shared_ptr<const ast::Template> root_;
};

}  // namespace tuft::chat
