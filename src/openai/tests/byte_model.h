// A model directory with 256 byte tokens, four special tokens, a token of a long text, and a chat template.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "openai/model_text.h"
#include "tokenizer/byte_level.h"

namespace tuft::openai {

class ByteModel {
 public:
  static constexpr int32_t kTurnEnd = 258;
  // kLongTokenBytes times '~'. No merges make it, so that no text is encoded with it.
  static constexpr int32_t kLongToken = 260;
  static constexpr size_t kLongTokenBytes = 128;

  explicit ByteModel(const std::string& chat_template =
                         "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
                         "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}",
                     const Json& normalizer = nullptr) {
    Json vocabulary = Json::object();
    for (int byte = 0; byte < 256; ++byte) vocabulary[tokenizer::byte_to_utf8(static_cast<uint8_t>(byte))] = byte;
    vocabulary[std::string(kLongTokenBytes, '~')] = kLongToken;
    Json added = Json::array();
    for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"}) {
      added.push_back({{"id", 256 + added.size()},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
    const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    write("tokenizer.json", {{"added_tokens", added},
                             {"normalizer", normalizer},
                             {"pre_tokenizer", byte_level},
                             {"decoder", byte_level},
                             {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}});
    write("config.json", {{"eos_token_id", kTurnEnd}});
    Json config = {{"eos_token", "<|im_end|>"}};
    if (!chat_template.empty()) config["chat_template"] = chat_template;
    write("tokenizer_config.json", config);
    config_.model_name = "base/model";
    config_.model_path = directory_.path();
    config_.max_model_len = 64;
  }

  const config::ModelConfig& config() const { return config_; }
  std::shared_ptr<const ModelText> text() {
    if (text_ == nullptr) {
      const auto loaded = ModelText::load(config_);
      EXPECT_TRUE(loaded.ok()) << loaded.error().message;
      text_ = *loaded;
    }
    return text_;
  }

 private:
  void write(const char* file, const Json& json) { std::ofstream(directory_.path() / file) << json.dump(); }

  TempDir directory_;
  config::ModelConfig config_;
  std::shared_ptr<const ModelText> text_;
};

}  // namespace tuft::openai
