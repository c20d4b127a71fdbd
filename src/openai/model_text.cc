#include "openai/model_text.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "telemetry/log.h"

namespace tuft::openai {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;

// Returns an empty object if the file is missing or does not hold an object.
Json read_json(const std::filesystem::path& path) {
  const auto text = read_file(path, kConfigBytesMax);
  if (!text.ok()) return Json::object();
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

std::unordered_set<int32_t> read_ends(const std::filesystem::path& directory) {
  std::unordered_set<int32_t> ends;
  // The first file that has the key counts, as in the engine.
  for (const char* name : {"generation_config", "config"}) {
    const Json json = read_json(directory / (std::string(name) + ".json"));
    const Json ids = json.value("eos_token_id", Json());
    for (const Json& id : ids.is_array() ? ids : Json::array({ids})) {
      if (id.is_number_integer()) ends.insert(id.get<int32_t>());
    }
    if (!ends.empty()) break;
  }
  return ends;
}

// Reads "eos_token": "</s>" or {"content": "</s>", ...}.
void read_special_tokens(const Json& json, std::map<std::string, std::string, std::less<>>& out) {
  for (const auto& [key, value] : json.items()) {
    if (!key.ends_with("_token")) continue;
    const Json content = value.is_object() ? value.value("content", Json()) : value;
    if (content.is_string()) out[key] = content.get<std::string>();
  }
}

Error no_tokenizer(const std::string& base_model, const Error& cause) {
  if (cause.code == ErrorCode::kNotFound) {
    return failed_precondition("base model " + base_model +
                                   " has no tokenizer.json in its directory and cannot read text; give "
                                   "token ids through the Tinker API",
                               "no_tokenizer");
  }
  return failed_precondition(
      "the tokenizer.json of base model " + base_model + " is not supported; the server's log has the reason",
      "unsupported_tokenizer");
}

}  // namespace

Result<std::shared_ptr<const ModelText>> ModelText::load(const config::ModelConfig& model) {
  std::shared_ptr<ModelText> text(new ModelText());
  text->base_model_ = model.model_name;
  text->tokens_max_ = model.max_model_len;
  auto tokenizer = tokenizer::Tokenizer::load(model.model_path);
  if (!tokenizer.ok()) {
    telemetry::log_warning("openai.tokenizer_refused", tokenizer.error().message,
                           {{"tuft.base_model", model.model_name}});
    return no_tokenizer(model.model_name, tokenizer.error());
  }
  text->tokenizer_ = std::move(tokenizer).value();
  const tokenizer::Decoder& decoder = text->tokenizer_->decoder();
  for (int32_t id = 0; id < decoder.size(); ++id) {
    text->token_bytes_max_ = std::max(text->token_bytes_max_, decoder.token_bytes(id).size());
  }
  text->ends_ = read_ends(model.model_path);
  if (const Status read = text->read_templates(model); !read.ok()) {
    telemetry::log_warning("openai.template_refused", read.error().message, {{"tuft.base_model", model.model_name}});
    text->template_error_ = failed_precondition(
        "the chat template of base model " + model.model_name + " is not supported: " + read.error().message,
        "unsupported_chat_template");
  }
  return std::shared_ptr<const ModelText>(std::move(text));
}

Status ModelText::read_templates(const config::ModelConfig& model) {
  const std::filesystem::path& directory = model.model_path;
  const Json config = read_json(directory / "tokenizer_config.json");
  read_special_tokens(read_json(directory / "special_tokens_map.json"), special_tokens_);
  read_special_tokens(config, special_tokens_);
  Json source = config.value("chat_template", Json());
  if (auto file = read_file(directory / "chat_template.jinja", kConfigBytesMax); file.ok()) source = std::move(*file);
  if (source.is_string()) {
    TUFT_ASSIGN(template_, chat::ChatTemplate::parse(source.get<std::string>()));
  } else if (source.is_array()) {
    for (const Json& named : source) {
      if (!named.is_object() || !named.value("template", Json()).is_string()) continue;
      const Json name = named.value("name", Json());
      if (name != "default" && name != "tool_use") continue;
      TUFT_ASSIGN((name == "default" ? template_ : tools_template_),
                  chat::ChatTemplate::parse(named.at("template").get<std::string>()));
    }
  }
  return {};
}

Error ModelText::too_long(const std::string& size) const {
  return invalid_argument("the prompt has " + size + " and is over the model's limit of " +
                              std::to_string(tokens_max_) + " tokens (max_model_len)",
                          "prompt_too_long");
}

// The factor allows for a normalizer that shortens the text.
Status ModelText::fits(std::string_view text) const {
  const size_t bytes_max =
      2 * std::max<size_t>(token_bytes_max_, 4) * static_cast<size_t>(std::max<int64_t>(tokens_max_, 1));
  if (text.size() <= bytes_max) return {};
  return too_long(std::to_string(text.size()) + " bytes");
}

Error ModelText::not_encoded(Error error) const {
  if (error.reason != tokenizer::kTooManyTokens) return error;
  return too_long("more than " + std::to_string(tokens_max_) + " tokens");
}

Result<tokenizer::Encoding> ModelText::start_encoding(std::string_view text, Endpoint endpoint,
                                                      std::function<Status(size_t bytes)> charge) const {
  auto encoding = tokenizer_->start(text, {.add_special_tokens = endpoint == Endpoint::kCompletions,
                                           .tokens_max = static_cast<size_t>(tokens_max_),
                                           .charge = std::move(charge)});
  if (!encoding.ok()) return not_encoded(std::move(encoding).error());
  return encoding;
}

Result<bool> ModelText::advance(tokenizer::Encoding& encoding, size_t steps) const {
  auto done = encoding.advance(steps);
  if (!done.ok()) return not_encoded(std::move(done).error());
  return done;
}

Result<const chat::ChatTemplate*> ModelText::template_for(const Request& request) const {
  if (template_error_) return *template_error_;
  if (!request.tools.is_null() && tools_template_) return &*tools_template_;
  if (!template_) {
    return failed_precondition("base model " + base_model_ +
                                   " has no chat template (chat_template.jinja, or chat_template in "
                                   "tokenizer_config.json); use completions",
                               "no_chat_template");
  }
  if (!request.tools.is_null() && !template_->uses("tools")) {
    return invalid_argument(
        "tools is not supported: the chat template of base model " + base_model_ + " does not read them; leave it out",
        "tools_unsupported");
  }
  return &*template_;
}

Result<std::string> ModelText::render(const Request& request, Nanos now) const {
  TUFT_ASSIGN(const chat::ChatTemplate* chosen, template_for(request));
  chat::RenderOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  options.tools = &request.tools;
  options.special_tokens = special_tokens_;
  options.variables = &request.variables;
  options.now = now;
  return chosen->render(request.messages, options);
}

std::string ModelText::visible_bytes(int32_t token) const {
  if (ends_.contains(token) || tokenizer_->is_special(token)) return {};
  return bytes(token);
}

int64_t ModelText::decoded_bytes_max(const std::vector<int32_t>& tokens) const {
  int64_t bytes = 0;
  for (const int32_t token : tokens) bytes += static_cast<int64_t>(this->bytes(token).size());
  return bytes;
}

Result<std::shared_ptr<const ModelText>> ModelTexts::get(const config::ModelConfig& model) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(mutex_);
    std::shared_ptr<Entry>& known = entries_[model.model_name];
    if (known == nullptr) known = std::make_shared<Entry>();
    entry = known;
  }
  MutexLock lock(entry->mutex);
  if (!entry->loaded) entry->loaded = ModelText::load(model);
  return *entry->loaded;
}

}  // namespace tuft::openai
