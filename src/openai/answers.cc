#include "openai/answers.h"

#include <utility>

#include "base/utf8.h"
#include "openai/errors.h"

namespace tuft::openai {
namespace {

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event(const Json& json) {
  return "data: " + dump(json) + "\n\n";
}

bool is_chat(const AnswerHead& head) {
  return head.endpoint == Endpoint::kChat;
}

Json begin(const AnswerHead& head, std::string_view object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

Json usage_json(const TokenUsage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

Json chat_token(const ModelText& text, const TokenChoice& choice) {
  const std::string bytes = text.bytes(choice.token);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
  return {{"token", printable(bytes)}, {"logprob", choice.logprob}, {"bytes", std::move(numbers)}};
}

Json chat_logprobs(const ModelText& text, const std::vector<ShownToken>& tokens) {
  Json content = Json::array();
  for (const ShownToken& token : tokens) {
    Json entry = chat_token(text, token.chosen);
    Json top = Json::array();
    for (const TokenChoice& choice : token.top) top.push_back(chat_token(text, choice));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// Names a token by its text, or as OpenAI does by its bytes ("bytes:\\xe2\\x82") if these are not UTF-8.
std::string token_name(const ModelText& text, int32_t token) {
  const std::string bytes = text.bytes(token);
  if (is_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    name.append("\\x").push_back(kDigits[static_cast<uint8_t>(byte) >> 4]);
    name.push_back(kDigits[static_cast<uint8_t>(byte) & 15]);
  }
  return name;
}

// The chosen token is one of the alternatives, even if it is not among the most likely. Of two tokens with the same
// bytes, the second is named by its id.
Json top_map(const ModelText& text, const ShownToken& token) {
  Json map = Json::object();
  bool has_chosen = false;
  const auto add = [&](const TokenChoice& choice) {
    std::string name = token_name(text, choice.token);
    if (map.contains(name)) name = "token_id:" + std::to_string(choice.token);
    map[name] = choice.logprob;
    has_chosen = has_chosen || choice.token == token.chosen.token;
  };
  for (const TokenChoice& choice : token.top) add(choice);
  if (!has_chosen) add(token.chosen);
  return map;
}

Json completion_logprobs(const AnswerHead& head, const ModelText& text, const std::vector<ShownToken>& tokens,
                         const std::vector<bool>& unscored) {
  Json names = Json::array();
  Json logprobs = Json::array();
  Json top = Json::array();
  Json offsets = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const ShownToken& token = tokens[i];
    const bool scored = i >= unscored.size() || !unscored[i];
    names.push_back(token_name(text, token.chosen.token));
    logprobs.push_back(scored ? Json(token.chosen.logprob) : Json());
    top.push_back(scored ? top_map(text, token) : Json());
    offsets.push_back(token.offset);
  }
  Json json = {{"tokens", std::move(names)}, {"token_logprobs", std::move(logprobs)}, {"top_logprobs", nullptr}};
  if (head.top_logprobs > 0) json["top_logprobs"] = std::move(top);
  json["text_offset"] = std::move(offsets);
  return json;
}

Json logprobs_json(const AnswerHead& head, const ModelText& text, const std::vector<ShownToken>& tokens,
                   const std::vector<bool>& unscored = {}) {
  if (!head.logprobs) return nullptr;
  return is_chat(head) ? chat_logprobs(text, tokens) : completion_logprobs(head, text, tokens, unscored);
}

Json chunk(const AnswerHead& head, Json choices) {
  Json json = begin(head, is_chat(head) ? "chat.completion.chunk" : "text_completion");
  json["choices"] = std::move(choices);
  if (head.usage_in_chunks) json["usage"] = nullptr;
  return json;
}

// `content` holds the text of the choice, as "delta" or as "text".
Json chunk_choice(const AnswerHead& head, int index, Json content, Json logprobs, Json finish_reason) {
  return Json::array({{{"index", index},
                       {is_chat(head) ? "delta" : "text", std::move(content)},
                       {"logprobs", std::move(logprobs)},
                       {"finish_reason", std::move(finish_reason)}}});
}

}  // namespace

std::string whole_answer(const AnswerHead& head, const ModelText& text, const std::vector<WholeChoice>& choices,
                         const TokenUsage& usage) {
  Json json = begin(head, is_chat(head) ? "chat.completion" : "text_completion");
  Json list = Json::array();
  for (const WholeChoice& choice : choices) {
    Json entry = {{"index", list.size()}};
    if (is_chat(head)) {
      entry["message"] = {{"role", "assistant"}, {"content", choice.piece.text}, {"refusal", nullptr}};
    } else {
      entry["text"] = choice.piece.text;
    }
    entry["logprobs"] = logprobs_json(head, text, choice.piece.tokens, choice.unscored);
    entry["finish_reason"] = choice.finish_reason;
    list.push_back(std::move(entry));
  }
  json["choices"] = std::move(list);
  json["usage"] = usage_json(usage);
  return dump(json);
}

std::string role_event(const AnswerHead& head, int index) {
  return event(chunk(head, chunk_choice(head, index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr)));
}

std::string piece_event(const AnswerHead& head, const ModelText& text, int index, const TextStream::Piece& piece) {
  Json content = piece.text;
  if (is_chat(head)) content = {{"content", piece.text}};
  return event(
      chunk(head, chunk_choice(head, index, std::move(content), logprobs_json(head, text, piece.tokens), nullptr)));
}

std::string finish_event(const AnswerHead& head, int index, std::string_view finish_reason) {
  Json content = is_chat(head) ? Json::object() : Json("");
  return event(chunk(head, chunk_choice(head, index, std::move(content), nullptr, finish_reason)));
}

std::string usage_event(const AnswerHead& head, const TokenUsage& usage) {
  Json json = chunk(head, Json::array());
  json["usage"] = usage_json(usage);
  return event(json);
}

std::string error_event(const Error& error) {
  return "data: " + error_body(error) + "\n\n";
}

namespace {

Json card(const control::ListedModel& model) {
  Json json = {{"id", model.id}, {"object", "model"}, {"created", model.created}};
  json["owned_by"] = model.owner.empty() ? std::string("system") : model.owner.str();
  if (!model.parent.empty()) json["parent"] = model.parent;
  json["is_public"] = model.is_public;
  return json;
}

}  // namespace

std::string model_list(const control::ListedModels& page) {
  Json data = Json::array();
  for (const control::ListedModel& model : page.models) data.push_back(card(model));
  return dump({{"object", "list"}, {"data", std::move(data)}, {"has_more", page.has_more}});
}

std::string model_card(const control::ListedModel& model) {
  return dump(card(model));
}

}  // namespace tuft::openai
