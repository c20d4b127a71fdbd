// Writes the answers and stream chunks of the OpenAI API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/generator.h"
#include "control/sampling/generation.h"
#include "openai/request.h"
#include "openai/text_stream.h"

namespace tuft::openai {

// The fields that all answers and chunks of a request share.
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
  int64_t cached = 0;  // part of `prompt`
  int64_t completion = 0;
};

// A complete choice.
struct WholeChoice {
  TextStream::Piece piece;
  // One for each of the first tokens of piece.tokens: true if it has no log-probability (the first token of a prompt).
  std::vector<bool> unscored;
  std::string_view finish_reason;
};

// The pieces of an answer are about as long as kAnswerPieceBytes (openai/service.h). What is passed must outlive them.
using AnswerPieces = Generator<std::string>;
AnswerPieces answer_pieces(const AnswerHead& head, const ModelText& text, const std::vector<WholeChoice>& choices,
                           TokenUsage usage);
// The pieces as one string.
std::string whole_answer(const AnswerHead& head, const ModelText& text, const std::vector<WholeChoice>& choices,
                         const TokenUsage& usage);
// Returns roughly the size of the answer.
size_t answer_bytes(const AnswerHead& head, const std::vector<WholeChoice>& choices);

// Each returns one server-sent event.
std::string role_event(const AnswerHead& head, int index);
std::string piece_event(const AnswerHead& head, const ModelText& text, int index, const TextStream::Piece& piece);
std::string finish_event(const AnswerHead& head, int index, std::string_view finish_reason);
std::string usage_event(const AnswerHead& head, const TokenUsage& usage);
std::string error_event(const Error& error);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// The answers to GET /models and GET /models/{id}.
std::string model_list(const control::ListedModels& page);
std::string model_card(const control::ListedModel& model);

}  // namespace tuft::openai
