// Answers and chunks as OpenAI's clients read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/generation.h"
#include "openai/request.h"
#include "openai/text_stream.h"

namespace tuft::openai {

// What every answer and chunk of a request begins with.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;
  std::string model;  // as the client named it
  int64_t created = 0;
  bool logprobs = false;
  int top_logprobs = 0;
  bool usage_in_chunks = false;  // stream_options.include_usage
};

struct TokenUsage {
  int64_t prompt = 0;
  int64_t cached = 0;  // of them
  int64_t completion = 0;
};

// A choice with all its text.
struct WholeChoice {
  TextStream::Piece piece;
  std::vector<bool>
      unscored;  // of piece.tokens from the start: true where there is no log-probability (the first of a prompt)
  std::string_view finish_reason;
};

std::string whole_answer(const AnswerHead& head, const ModelText& text, const std::vector<WholeChoice>& choices,
                         const TokenUsage& usage);

// Server-sent events.
std::string role_event(const AnswerHead& head, int index);
std::string piece_event(const AnswerHead& head, const ModelText& text, int index, const TextStream::Piece& piece);
std::string finish_event(const AnswerHead& head, int index, std::string_view finish_reason);
std::string usage_event(const AnswerHead& head, const TokenUsage& usage);
std::string error_event(const Error& error);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// GET /models and /models/{id}
std::string model_list(const control::ListedModels& page);
std::string model_card(const control::ListedModel& model);

}  // namespace tuft::openai
