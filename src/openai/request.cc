#include "openai/request.h"

#include <algorithm>
#include <limits>

namespace tuft::openai {
namespace {

constexpr int kDepthMax = 64;
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
// The default of completions.
constexpr int kDefaultTokens = 16;

void read_stops(const Fields& fields, Request& request) {
  const std::string rule = "must be a string or a list of at most " + std::to_string(kStopsMax) +
                           " strings, none of them empty or longer than " + std::to_string(kStopBytesMax) + " bytes";
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kStopsMax) return fields.wrong("stop", rule);
  for (const Json& item : list) {
    const std::string* text = item.get_ptr<const std::string*>();
    if (text == nullptr || text->empty() || text->size() > kStopBytesMax) return fields.wrong("stop", rule);
    request.stops.push_back(*text);
    request.params.mutable_stop_strs()->add_values(*text);
  }
}

void read_sampling(const Fields& fields, Request& request) {
  tinker_public::SamplingParams& params = request.params;
  if (const auto seed =
          fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    params.set_seed(static_cast<uint64_t>(*seed));
  }
  params.set_temperature(static_cast<float>(fields.number("temperature", 0, 100).value_or(1)));
  const double top_p = fields.number("top_p", 0, 1).value_or(1);
  if (top_p <= 0) fields.wrong("top_p", "must be greater than 0 and at most 1");
  params.set_top_p(static_cast<float>(top_p));
  const int64_t top_k = fields.integer("top_k", -1, kInt32Max).value_or(-1);
  params.set_top_k(top_k == 0 ? -1 : static_cast<int32_t>(top_k));
  read_stops(fields, request);
  request.choices = static_cast<int>(fields.integer("n", 1, kChoicesMax).value_or(1));
  request.stream = fields.boolean("stream", false);
  for (const char* penalty : {"frequency_penalty", "presence_penalty"}) fields.refuse(penalty, 0);
  fields.refuse("repetition_penalty", 1);
  fields.refuse("min_p", 0);
  fields.refuse("logit_bias", Json::object());
}

void read_stream_options(const Fields& fields, Problem& problem, Request& request) {
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.wrong("stream_options", "must be an object");
  if (!request.stream) return fields.wrong("stream_options", "is allowed only if stream is true");
  request.include_usage = Fields(*options, problem, "stream_options.").boolean("include_usage", false);
}

void read_response_format(const Fields& fields) {
  const Json* format = fields.find("response_format");
  if (format == nullptr) return;
  if (format->is_object() && format->contains("type") && format->at("type") == "text") return;
  fields.wrong("response_format", "is supported with type text only");
}

// ---- completions

bool read_tokens(const Json& list, std::vector<int32_t>& out) {
  out.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > static_cast<uint64_t>(kInt32Max)) return false;
    out.push_back(item.get<int32_t>());
  }
  return !out.empty();
}

void read_prompts(const Fields& fields, Request& request) {
  constexpr const char* kRule = "must be a string, a list of strings, a list of token ids or a list of such lists";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.wrong("prompt", "is missing");
  if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty()) return fields.wrong("prompt", kRule);
  std::vector<int32_t> tokens;
  if (prompt->front().is_number()) {
    if (!read_tokens(*prompt, tokens)) return fields.wrong("prompt", kRule);
    request.prompts.emplace_back(std::move(tokens));
    return;
  }
  for (const Json& item : *prompt) {
    if (item.is_string()) {
      request.prompts.emplace_back(item.get<std::string>());
    } else if (tokens.clear(); item.is_array() && read_tokens(item, tokens)) {
      request.prompts.emplace_back(std::move(tokens));
    } else {
      return fields.wrong("prompt", kRule);
    }
  }
  if (request.prompts.size() * static_cast<size_t>(request.choices) > kChoicesMax) {
    fields.wrong("prompt", "times n must be at most " + std::to_string(kChoicesMax) + " choices");
  }
}

void read_completion(const Fields& fields, Request& request) {
  request.echo = fields.boolean("echo", false);
  const int64_t tokens = fields.integer("max_tokens", 0, kInt32Max).value_or(kDefaultTokens);
  request.scores_only = tokens == 0;
  if (request.scores_only && !request.echo) fields.wrong("max_tokens", "must be at least 1 unless echo is true");
  request.params.set_max_tokens(static_cast<int32_t>(std::max<int64_t>(tokens, 1)));
  if (const auto logprobs = fields.integer("logprobs", 0, kTopLogprobsMax)) {
    request.logprobs = true;
    request.top_logprobs = static_cast<int>(*logprobs);
  }
  if (request.echo && request.logprobs && request.stream) {
    fields.wrong("echo", "with logprobs cannot be streamed: the prompt's log-probabilities are known at the end");
  }
  if (fields.integer("best_of", 1, kChoicesMax).value_or(request.choices) != request.choices) {
    fields.wrong("best_of", "must equal n: selecting the best of more choices is not supported");
  }
  fields.refuse("suffix", "");
  read_prompts(fields, request);
}

// ---- chat

// Returns the content of a message: a string, or its text parts joined by newlines.
bool read_content(const Json& content, std::string& out) {
  if (content.is_string()) {
    out = content.get<std::string>();
    return true;
  }
  if (!content.is_array()) return false;
  bool first = true;
  for (const Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text")) return false;
    const std::string* text = part.at("text").get_ptr<const std::string*>();
    if (text == nullptr) return false;
    if (!first) out += '\n';
    out += *text;
    first = false;
  }
  return true;
}

void read_messages(const Fields& fields, Request& request) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields.wrong("messages", "must be a list of at least one message");
  }
  request.messages = Json::array();
  for (const Json& message : *messages) {
    const std::string where = "messages[" + std::to_string(request.messages.size()) + "]";
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) {
      return fields.wrong(where, "must be an object with a role");
    }
    Json copy = message;
    const bool has_content = message.contains("content") && !message.at("content").is_null();
    if (has_content) {
      std::string text;
      if (!read_content(message.at("content"), text)) {
        return fields.wrong(where + ".content", "must be a string or a list of parts of type text");
      }
      copy["content"] = std::move(text);
    } else if (message.contains("tool_calls")) {
      copy["content"] = "";
    } else {
      return fields.wrong(where + ".content", "is missing");
    }
    request.messages.push_back(std::move(copy));
  }
}

void read_tools(const Fields& fields, Request& request) {
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) return fields.wrong("tools", "must be a list");
    if (!tools->empty()) request.tools = *tools;
  }
  if (const Json* choice = fields.find("tool_choice"); choice != nullptr && *choice != "auto") {
    if (*choice != "none") fields.wrong("tool_choice", "must be auto or none: tools only go into the prompt");
    request.tools = nullptr;
  }
  fields.refuse("parallel_tool_calls", true);
  fields.refuse("functions", Json::array());
  fields.refuse("function_call", "none");
}

void read_chat(const Fields& fields, Request& request) {
  read_messages(fields, request);
  read_tools(fields, request);
  const auto newer = fields.integer("max_completion_tokens", 1, kInt32Max);
  const auto older = fields.integer("max_tokens", 1, kInt32Max);
  if (newer || older) request.params.set_max_tokens(static_cast<int32_t>(newer ? *newer : *older));
  request.logprobs = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top.value_or(0) > 0 && !request.logprobs) fields.wrong("top_logprobs", "needs logprobs to be true");
  request.top_logprobs = static_cast<int>(top.value_or(0));
  request.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  if (const Json* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object()) fields.wrong("chat_template_kwargs", "must be an object");
    request.variables = *variables;
  }
  fields.refuse("modalities", Json::array({"text"}));
  for (const char* name : {"audio", "prediction", "web_search_options", "continue_final_message", "chat_template"}) {
    fields.refuse(name, false);
  }
}

}  // namespace

std::string_view endpoint_name(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "chat/completions" : "completions";
}

Request read_request(Endpoint endpoint, std::string_view body, Problem& problem) {
  Request request;
  request.endpoint = endpoint;
  const auto json = parse_object(body, kDepthMax);
  if (!json.ok()) {
    problem.status = json.error();
    return request;
  }
  const Fields fields(*json, problem);
  request.model = fields.string("model").value_or("");
  if (request.model.empty()) fields.wrong("model", "must name a model; GET /oai/api/v1/models lists them");
  read_sampling(fields, request);
  read_stream_options(fields, problem, request);
  read_response_format(fields);
  if (endpoint == Endpoint::kChat) {
    read_chat(fields, request);
  } else {
    read_completion(fields, request);
  }
  return request;
}

}  // namespace tuft::openai
