// The checked body of POST /completions or POST /chat/completions. A known field that this server does not support is
// refused by name; unknown fields are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "openai/fields.h"
#include "openai/types.h"
#include "tinker/public.pb.h"

namespace tuft::openai {

inline constexpr int kChoicesMax = 128;
inline constexpr int kTopLogprobsMax = 20;
inline constexpr int kStopsMax = 16;
inline constexpr size_t kStopBytesMax = 1024;

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct Request {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;

  std::vector<Prompt> prompts;  // completions: at least 1

  // Chat. Message contents are strings.
  Json messages;
  Json tools;                       // null: none
  Json variables = Json::object();  // further variables of the template
  bool add_generation_prompt = true;

  tinker_public::SamplingParams params;  // a max_tokens of 0 is 1 here; see scores_only
  std::vector<std::string> stops;
  int choices = 1;  // per prompt
  bool stream = false;
  bool include_usage = false;
  bool echo = false;         // completions: the text begins with the prompt
  bool scores_only = false;  // completions with echo and max_tokens 0: no output tokens
  bool logprobs = false;
  int top_logprobs = 0;
};

// The request is valid if `problem.status` is ok.
Request read_request(Endpoint endpoint, std::string_view body, Problem& problem);

}  // namespace tuft::openai
