// The text side of a base model: its tokenizer, its chat template, and the tokens that end an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "config/config.h"
#include "openai/request.h"
#include "tokenizer/tokenizer.h"

namespace tuft::openai {

// Immutable; thread-safe.
class ModelText {
 public:
  // Reads the model's directory. Returns kFailedPrecondition if it has no supported tokenizer; the message has no path.
  static Result<std::shared_ptr<const ModelText>> load(const config::ModelConfig& model);

  // Renders a conversation with the chat template. Returns kFailedPrecondition if the model has none.
  Result<std::string> render(const Request& request, Nanos now) const;
  // Refuses a text that is too long for the model whatever its tokens are, which takes no time.
  Status fits(std::string_view text) const;
  // Begins to encode a prompt of completions, with the special tokens that the tokenizer adds to every text, such as
  // beginning-of-text; or a rendered conversation, which has them. A text with more tokens than max_model_len is
  // refused when these have been made. All these refusals have the reason "prompt_too_long". `charge` is that of
  // tokenizer::EncodeOptions.
  Result<tokenizer::Encoding> start_encoding(std::string_view text, Endpoint endpoint,
                                             std::function<Status(size_t bytes)> charge) const;
  // Calls Encoding::advance().
  Result<bool> advance(tokenizer::Encoding& encoding, size_t steps) const;

  // Returns the bytes that the token adds to an answer: nothing for special tokens and tokens that end an answer. The
  // bytes may be a part of a UTF-8 character.
  std::string visible_bytes(int32_t token) const;
  std::string bytes(int32_t token) const { return tokenizer_->decoder().token_bytes(token); }
  std::string decode(const std::vector<int32_t>& tokens) const { return tokenizer_->decode(tokens); }
  // Returns an upper bound for the length of decode() that needs no memory.
  int64_t decoded_bytes_max(const std::vector<int32_t>& tokens) const;

 private:
  ModelText() = default;

  Status read_templates(const config::ModelConfig& model);
  Error too_long(const std::string& size) const;
  Error not_encoded(Error error) const;
  Result<const chat::ChatTemplate*> template_for(const Request& request) const;

  std::string base_model_;
  int64_t tokens_max_ = 0;
  std::optional<tokenizer::Tokenizer> tokenizer_;
  size_t token_bytes_max_ = 0;
  std::unordered_set<int32_t> ends_;
  std::optional<chat::ChatTemplate> template_;
  std::optional<chat::ChatTemplate> tools_template_;
  std::optional<Error> template_error_;  // why there is no template
  std::map<std::string, std::string, std::less<>> special_tokens_;
};

// Loads each model at its first use. Thread-safe. get() reads files, so it must not be called on an I/O thread.
class ModelTexts {
 public:
  Result<std::shared_ptr<const ModelText>> get(const config::ModelConfig& model);

 private:
  struct Entry {
    Mutex mutex;  // held while the model is loaded, so that other callers wait for it
    std::optional<Result<std::shared_ptr<const ModelText>>> loaded TUFT_GUARDED_BY(mutex);
  };

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> entries_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::openai
