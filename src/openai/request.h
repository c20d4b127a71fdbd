// What a client asks for: the body of POST /completions and /chat/completions, checked. What this server cannot do is
// refused by the field's name; fields that nobody knows are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "openai/fields.h"
#include "tinker/public.pb.h"

namespace tuft::openai {

inline constexpr int kChoicesMax = 128;
inline constexpr int kTopLogprobsMax = 20;
inline constexpr int kStopsMax = 16;
inline constexpr size_t kStopBytesMax = 1024;

enum class Endpoint : uint8_t { kCompletions, kChat };
std::string_view endpoint_name(Endpoint endpoint);  // "completions", "chat/completions"

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct Request {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;

  std::vector<Prompt> prompts;  // of completions; >= 1

  // Of chat. Contents are strings.
  Json messages;
  Json tools;                       // null: none
  Json variables = Json::object();  // more names for the template
  bool add_generation_prompt = true;

  tinker_public::SamplingParams params;  // max_tokens 0 is 1 here; see scores_only
  std::vector<std::string> stops;
  int choices = 1;  // of each prompt
  bool stream = false;
  bool include_usage = false;
  bool echo = false;         // completions: the text begins with the prompt
  bool scores_only = false;  // completions with echo and max_tokens 0: no tokens are wanted
  bool logprobs = false;
  int top_logprobs = 0;
};

// `problem.status` says whether the request is good.
Request read_request(Endpoint endpoint, std::string_view body, Problem& problem);

}  // namespace tuft::openai
