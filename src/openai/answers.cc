#include "openai/answers.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "openai/errors.h"
#include "openai/service.h"

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

Json chat_entry(const ModelText& text, const ShownToken& token) {
  Json entry = chat_token(text, token.chosen);
  Json top = Json::array();
  for (const TokenChoice& choice : token.top) top.push_back(chat_token(text, choice));
  entry["top_logprobs"] = std::move(top);
  return entry;
}

// Names a token by its text, or as OpenAI does by its bytes ("bytes:\\xe2\\x82") if these are not UTF-8.
std::string token_name(const ModelText& text, int32_t token) {
  std::string bytes = text.bytes(token);
  if (is_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char& byte : bytes) append_hex(name.append("\\x"), {&byte, 1});
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

// ---- the lists of log-probabilities, which have an element for each token

// A token without a score is the first of a prompt.
Json content_element(const ModelText& text, const ShownToken& token, bool) {
  return chat_entry(text, token);
}
Json token_element(const ModelText& text, const ShownToken& token, bool) {
  return token_name(text, token.chosen.token);
}
Json logprob_element(const ModelText&, const ShownToken& token, bool scored) {
  return scored ? Json(token.chosen.logprob) : Json();
}
Json top_element(const ModelText& text, const ShownToken& token, bool scored) {
  return scored ? top_map(text, token) : Json();
}
Json offset_element(const ModelText&, const ShownToken& token, bool) {
  return token.offset;
}

struct List {
  std::string name;
  Json (*element)(const ModelText& text, const ShownToken& token, bool scored);  // null: the list is null
};

std::vector<List> logprob_lists(const AnswerHead& head) {
  if (!head.logprobs) return {};
  if (is_chat(head)) return {{"content", content_element}, {"refusal", nullptr}};
  return {{"tokens", token_element},
          {"token_logprobs", logprob_element},
          {"top_logprobs", head.top_logprobs > 0 ? top_element : nullptr},
          {"text_offset", offset_element}};
}

// Returns the lists of an event, whose tokens all have scores.
Json logprobs_json(const AnswerHead& head, const ModelText& text, const std::vector<ShownToken>& tokens) {
  if (!head.logprobs) return nullptr;
  Json json = Json::object();
  for (const List& list : logprob_lists(head)) {
    Json& elements = json[list.name];
    if (list.element == nullptr) continue;
    elements = Json::array();
    for (const ShownToken& token : tokens) elements.push_back(list.element(text, token, true));
  }
  return json;
}

bool is_scored(const WholeChoice& choice, size_t token) {
  return token >= choice.unscored.size() || !choice.unscored[token];
}

// Returns an object without its closing bracket.
std::string opened(const Json& object) {
  std::string text = dump(object);
  text.pop_back();
  return text;
}

// Returns a choice up to its text, which is a string.
std::string before_text(const AnswerHead& head, size_t index) {
  return R"({"index":)" + std::to_string(index) +
         (is_chat(head) ? R"(,"message":{"role":"assistant","content":")" : R"(,"text":")");
}

std::string_view after_text(const AnswerHead& head) {
  return is_chat(head) ? R"(","refusal":null})" : R"(")";
}

// Returns the next characters of a text, of which a string of JSON has at most six bytes for each byte.
std::string_view next_part(std::string_view text) {
  size_t size = std::min(text.size(), kAnswerPieceBytes / 8);
  while (size < text.size() && (static_cast<uint8_t>(text[size]) & 0xC0) == 0x80) ++size;
  return text.substr(0, size);
}

// Returns the text as it stands between the quotes of a string.
std::string escaped(std::string_view text) {
  const std::string string = dump(Json(text));
  return string.substr(1, string.size() - 2);
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

AnswerPieces answer_pieces(const AnswerHead& head, const ModelText& text, const std::vector<WholeChoice>& choices,
                           TokenUsage usage) {
  std::string out = opened(begin(head, is_chat(head) ? "chat.completion" : "text_completion")) + ",\"choices\":[";
  const std::vector<List> lists = logprob_lists(head);
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& choice = choices[i];
    out.append(i == 0 ? "" : ",").append(before_text(head, i));
    std::string_view rest = choice.piece.text;
    while (!rest.empty()) {
      const std::string_view part = next_part(rest);
      out.append(escaped(part));
      rest.remove_prefix(part.size());
      if (out.size() >= kAnswerPieceBytes) co_yield std::exchange(out, {});
    }
    out.append(after_text(head)).append(",\"logprobs\":");
    if (lists.empty()) out.append("null");
    for (const List& list : lists) {
      out.append(&list == lists.data() ? "{\"" : ",\"").append(list.name).append("\":");
      out.append(list.element == nullptr ? "null" : "[");
      for (size_t token = 0; list.element != nullptr && token < choice.piece.tokens.size(); ++token) {
        const Json element = list.element(text, choice.piece.tokens[token], is_scored(choice, token));
        out.append(token == 0 ? "" : ",").append(dump(element));
        if (out.size() >= kAnswerPieceBytes) co_yield std::exchange(out, {});
      }
      out.append(list.element == nullptr ? "" : "]");
    }
    out.append(lists.empty() ? "" : "}").append(",\"finish_reason\":").append(dump(choice.finish_reason)).append("}");
    if (out.size() >= kAnswerPieceBytes) co_yield std::exchange(out, {});
  }
  out.append("],\"usage\":").append(dump(usage_json(usage))).append("}");
  co_yield std::move(out);
}

std::string whole_answer(const AnswerHead& head, const ModelText& text, const std::vector<WholeChoice>& choices,
                         const TokenUsage& usage) {
  std::string answer;
  AnswerPieces pieces = answer_pieces(head, text, choices, usage);
  while (pieces.next()) answer.append(pieces.value());
  return answer;
}

size_t answer_bytes(const AnswerHead& head, const std::vector<WholeChoice>& choices) {
  constexpr size_t kChoiceBytes = 100;
  constexpr size_t kTokenBytes = 60;  // of a token with its log-probability
  size_t bytes = 0;
  for (const WholeChoice& choice : choices) {
    bytes += kChoiceBytes + choice.piece.text.size();
    if (head.logprobs) bytes += choice.piece.tokens.size() * kTokenBytes * static_cast<size_t>(1 + head.top_logprobs);
  }
  return bytes;
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

std::string quoted(const std::string& text) {
  return dump(Json(text));
}

}  // namespace

// Without a tree of values, because a page has up to a thousand cards.
std::string model_card(const control::ListedModel& model) {
  std::string card = R"({"id":)" + quoted(model.id);
  card.append(R"(,"object":"model","created":)").append(std::to_string(model.created));
  card.append(R"(,"owned_by":)").append(quoted(model.owner.empty() ? "system" : model.owner.str()));
  if (!model.parent.empty()) card.append(R"(,"parent":)").append(quoted(model.parent));
  return card.append(R"(,"is_public":)").append(model.is_public ? "true}" : "false}");
}

std::string model_list(const control::ListedModels& page) {
  std::string list = R"({"object":"list","data":[)";
  for (const control::ListedModel& model : page.models) {
    list.append(&model == page.models.data() ? "" : ",").append(model_card(model));
  }
  return list.append(R"(],"has_more":)").append(page.has_more ? "true}" : "false}");
}

}  // namespace tuft::openai
