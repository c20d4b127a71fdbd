// Errors as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace tuft::openai {

// The clients retry 408, 409, 429 and everything from 500 on.
int http_status(const Error& error);

// `param`: the field of the request that is wrong; may be empty. Of internal errors the client learns only that there
// was one.
std::string error_body(const Error& error, std::string_view param = {});

}  // namespace tuft::openai
